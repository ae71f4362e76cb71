"""Adapters of model families and model libraries: builders of models, and access to their attention.

Importing this package installs the shims of `adapters.compat`.
"""

from adapters.compat import install

install()
