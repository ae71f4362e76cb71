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


def _replace_batching() -> None:
    name = "fairseq.data.data_utils_fast"
    if find_spec(name) is None:
        from adapters.compat import fairseq_batches

        sys.modules[name] = fairseq_batches
