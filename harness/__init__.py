"""The engine: regularizers, attention, trials and runs. The public package is `dropbench`."""
