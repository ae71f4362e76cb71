"""Models: the attention calls that they make, the contract of adapters, the catalog, and `regularize`."""

from harness.moved import names_of

__getattr__ = names_of("harness.models.catalog")  # `MODELS` was here up to 0.1
