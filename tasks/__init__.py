"""Tasks: one folder per kind, readers of published formats in `data`, hyper-parameters in `recipes`."""

import adapters  # noqa: F401 - its shims must be installed before any library that needs one is imported
