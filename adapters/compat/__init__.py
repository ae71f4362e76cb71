"""Makes old or mismatched libraries importable, by shims that act around a library's own import.

`install` puts a finder before Python's own ones. It imports nothing and does nothing until one of the libraries below
is imported for the first time; then the library's shim, a context manager, is entered before its code runs and left
afterwards, also when the import fails. Each shim steps aside where its library is whole.

An installed DropBench calls `install` when Python starts (`adapters/dropbench-compat.pth`), because a program may
import timm, and with it torchvision, before anything of ours. Keep this module cheap: every start of Python pays.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_SHIMS = {
    "torchvision": "adapters.compat.torchvision",
    "mmcv": "adapters.compat.mmcv",
    "fairseq": "adapters.compat.fairseq",
}


class _ShimFinder:
    """Finds what the other finders find, and wraps the execution of the libraries that have a shim."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in _SHIMS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, None) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with import_module(_SHIMS[name]).around_import(spec):
                execute(module)

        # On the instance: the loader keeps its type, and so all that inspect, pkgutil and resources ask of it.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Apply each shim around the first import of its library; for a library that is imported already, now.

    Calling it again changes nothing.
    """
    if any(isinstance(finder, _ShimFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _ShimFinder())
    for name, shim in _SHIMS.items():
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None:
            with import_module(shim).around_import(spec):
                pass
