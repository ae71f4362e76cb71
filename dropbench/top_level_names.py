"""Old names of packages: an installed `dropbench.harness` can also be imported as `harness`, with a warning.

Plug-ins of version 0.1 import `harness`, `adapters` and `tasks`, which is also how the packages are called in the
repository. Any other package of that name takes precedence.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from harness import __name__ as HARNESS

PREFIX = HARNESS.removesuffix("harness")
"""Of the packages' names: "dropbench." if installed, "" in the repository."""
PACKAGES = ("harness", "adapters", "tasks", "db", "jobs")


class _TopLevelNames:
    """Import finder and loader; asked first, because Python would load a second copy of a submodule."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        package, dot, _ = name.partition(".")
        if package not in PACKAGES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        if dot and sys.modules[package] is not sys.modules.get(PREFIX + package):
            return None
        if not dot and any(finder.find_spec(name, None) for finder in others):
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warnings.warn(f"{name} is now {PREFIX}{name}; the old name goes in 0.3", DeprecationWarning, stacklevel=5)
        sys.modules[name] = importlib.import_module(PREFIX + name)


def install() -> None:
    """Let installed packages be imported by their old names; does nothing in the repository."""
    if PREFIX and not any(isinstance(finder, _TopLevelNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TopLevelNames())
