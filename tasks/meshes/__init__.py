"""Body mesh recovery with METRO."""
