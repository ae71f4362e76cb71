"""Shim for mmdet on mmcv-lite, which has no compiled operators and installs everywhere.

`mmdet.models` imports detectors that need compiled operators. DropBench does not use them, and DETR needs no such
operator. A stand-in for `mmcv._ext` makes them importable; calling an operator raises an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

_NAME = "mmcv._ext"


class _NoOperators(ModuleType):
    """A module with every operator as a function that raises NotImplementedError."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(f"module '{_NAME}' has no attribute '{name}'")

        def missing(*args: Any, **kwargs: Any) -> NoReturn:
            raise NotImplementedError(f"mmcv operator '{name}' was called, but mmcv is installed without compiled ops")

        return missing


@contextmanager
def around_import(spec: ModuleSpec) -> Iterator[None]:
    """Install the stand-in after mmcv's import, unless mmcv has compiled operators."""
    yield
    if find_spec(_NAME) is None:
        operators = _NoOperators(_NAME)
        # mmengine detects missing operators by a spec without a loader; without a spec its Runner would fail.
        operators.__spec__ = ModuleSpec(_NAME, None)
        sys.modules[_NAME] = sys.modules["mmcv"]._ext = operators  # type: ignore[attr-defined]
