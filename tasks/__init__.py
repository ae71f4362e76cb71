"""Tasks: one folder per kind, readers of published formats in `data`, hyper-parameters in `recipes`."""

if __name__ != "dropbench.tasks":
    raise ImportError("`tasks` is imported as `dropbench.tasks`")

import dropbench.adapters  # noqa: F401 - its shims must be installed before any library that needs one is imported
