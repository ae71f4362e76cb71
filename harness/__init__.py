"""The engine: regularizers, attention, trials and runs. The public package is `dropbench`."""

if __name__ != "dropbench.harness":
    raise ImportError("`harness` is imported as `dropbench.harness`")
