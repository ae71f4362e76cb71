"""Models, and access to their attention; importing this package installs the shims of `dropbench.adapters.compat`."""

if __name__ != "dropbench.adapters":
    raise ImportError("`adapters` is imported as `dropbench.adapters`")

from dropbench.adapters.compat import install

install()
