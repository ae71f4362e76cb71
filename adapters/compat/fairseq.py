"""Shim of fairseq 0.12.2, written for Python 3.6 to 3.10 and torch 1, for Python 3.11 and torch 2.

Python 3.11 refuses dataclass fields with unhashable defaults. fairseq's configurations have other configurations as
defaults, which are never changed in place. The shim gives them the hash of a plain object.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any


@contextmanager
def around_import(spec: ModuleSpec) -> Iterator[None]:
    """Make fairseq's dataclasses hashable, and replace its batching if it was built without C++ extensions."""
    dataclass = dataclasses.dataclass

    def hashable_dataclass(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return partial(hashable_dataclass, **options)
        decorated: Any = dataclass(cls, **options)
        if decorated.__module__.startswith("fairseq.") and decorated.__hash__ is None:
            decorated.__hash__ = object.__hash__
        return decorated

    dataclasses.dataclass = hashable_dataclass
    try:
        # Deprecations of torch and hydra in fairseq's own code, two of whose tasks call logging.basicConfig.
        with silence_root_logger(), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        dataclasses.dataclass = dataclass
    batching = "fairseq.data.data_utils_fast"
    if find_spec(batching) is None:
        from dropbench.adapters.compat import fairseq_batches

        data: Any = sys.modules["fairseq.data"]
        sys.modules[batching] = data.data_utils_fast = fairseq_batches
    # fairseq's configurations are written for hydra 1.0, and hydra 1.3 warns about them.
    utils: Any = sys.modules["fairseq.dataclass.utils"]
    utils.compose = _without_warnings(utils.compose)
    # hydra finds the configuration relative to the caller's file, which is one frame further away.
    utils.initialize = _without_warnings(partial(utils.initialize, caller_stack_depth=2))


@contextmanager
def silence_root_logger() -> Iterator[None]:
    """Give the root logger a handler: then `logging.basicConfig`, and so fairseq, adds none to standard output."""
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)


def _without_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        with warnings.catch_warnings(action="ignore"):
            return function(*args, **options)

    return call
