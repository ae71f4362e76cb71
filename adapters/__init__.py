"""Models, and access to their attention; importing this package installs the shims of `adapters.compat`."""

from adapters.compat import install

install()
