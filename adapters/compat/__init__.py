"""Shims that make old or mismatched libraries importable, applied around a library's import.

`install` adds an import finder before Python's own finders. The finder imports nothing until one of the libraries below
is imported for the first time. Then the library's shim, a context manager, is entered before the library's code runs
and exited afterwards, even if the import fails. A shim does nothing for an intact library.

`import dropbench` calls `install`, so that a program may import timm, and with it torchvision, after it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_SHIMS = ("torchvision", "mmcv", "fairseq")
"""Libraries with a shim, which is the module of the same name in this folder."""


class _ShimFinder:
    """An import finder that wraps the execution of the libraries with a shim."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in _SHIMS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, None) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with import_module(f"{__name__}.{name}").around_import(spec):
                execute(module)

        # Set on the instance, so that the loader keeps its type for inspect, pkgutil and resources.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Apply each shim around its library's first import, or now if that has happened; further calls do nothing."""
    if any(isinstance(finder, _ShimFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _ShimFinder())
    for name in _SHIMS:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None:
            with import_module(f"{__name__}.{name}").around_import(spec):
                pass
