"""fairseq 0.12.2, written for Python 3.6 to 3.10 and torch 1, on Python 3.11 and torch 2.

Python 3.11 refuses a dataclass field whose default is unhashable; fairseq's configurations have configurations as
defaults, and those are never changed in place. They get the hash of a plain object.
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


def _hashable(cls: type) -> type:
    if cls.__module__.startswith("fairseq.") and cls.__hash__ is None:
        cls.__hash__ = object.__hash__
    return cls


@contextmanager
def around_import(spec: ModuleSpec) -> Iterator[None]:
    """Let fairseq's dataclasses be defined, and replace its batching where it was built without a C++ compiler."""
    dataclass = dataclasses.dataclass

    def hashable_dataclass(cls: type | None = None, /, **options: Any) -> type | Callable[[type], type]:
        if cls is None:
            return lambda decorated: _hashable(dataclass(**options)(decorated))
        return _hashable(dataclass(cls, **options))

    # Two of fairseq's tasks call logging.basicConfig, which does nothing where the root logger has a handler.
    keep_out = logging.NullHandler()
    logging.root.addHandler(keep_out)
    dataclasses.dataclass = hashable_dataclass  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            # Deprecations of torch and hydra that only fairseq's authors could mend.
            warnings.simplefilter("ignore")
            yield
    finally:
        dataclasses.dataclass = dataclass
        logging.root.removeHandler(keep_out)
    _replace_batching()
    _hush_hydra()


def _hush_hydra() -> None:
    """Hide the warnings of hydra 1.3 at fairseq's configurations, which are composed in the ways of hydra 1.0."""
    utils: Any = sys.modules["fairseq.dataclass.utils"]
    utils.compose = _quiet(utils.compose)
    # One frame more between hydra and the file beside which it looks for the configuration.
    utils.initialize = _quiet(partial(utils.initialize, caller_stack_depth=2))


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args, **options)

    return call


def _replace_batching() -> None:
    name = "fairseq.data.data_utils_fast"
    if find_spec(name) is None:
        from adapters.compat import fairseq_batches

        sys.modules[name] = sys.modules["fairseq.data"].data_utils_fast = fairseq_batches  # type: ignore[attr-defined]
