"""Models: the attention calls that they make, the contract of adapters, the catalog, and `regularize`."""
