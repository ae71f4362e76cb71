"""mmdet on mmcv-lite, the mmcv without compiled operators, which installs everywhere.

`mmdet.models` imports detectors that DropBench has no use for, and those import compiled operators. A stand-in for
`mmcv._ext` lets them be imported; calling such an operator raises. DETR and its kin need none of them.
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
    """A module in which every operator exists and none works."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(f"module '{_NAME}' has no attribute '{name}'")

        def missing(*args: Any, **kwargs: Any) -> NoReturn:
            raise NotImplementedError(f"mmcv operator '{name}' was called, but mmcv is installed without compiled ops")

        return missing


@contextmanager
def around_import(spec: ModuleSpec) -> Iterator[None]:
    """Put the stand-in in place after mmcv's import, unless mmcv has its operators."""
    yield
    if find_spec(_NAME) is None:
        operators = _NoOperators(_NAME)
        # No loader is how mmengine learns that the operators are missing; without a spec its Runner would fail.
        operators.__spec__ = ModuleSpec(_NAME, None)
        sys.modules[_NAME] = sys.modules["mmcv"]._ext = operators  # type: ignore[attr-defined]
