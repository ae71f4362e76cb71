"""DropBench: attention regularizers, and the harness that tries them on nine kinds of task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import moved
from harness.registry import load

if TYPE_CHECKING:
    from harness.errors import InputError
    from harness.models.attention import attend
    from harness.models.regularize import regularize, sites, unregularize
    from harness.regularizers import REGULARIZERS
    from harness.regularizers.base import Regularizer, Site
    from harness.regularizers.drop import AttentionDrop
    from harness.trials.trial import Trial

__all__ = [
    "REGULARIZERS",
    "AttentionDrop",
    "InputError",
    "Regularizer",
    "Site",
    "Trial",
    "attend",
    "regularize",
    "sites",
    "unregularize",
]

_WHERE = {
    "REGULARIZERS": "harness.regularizers",
    "AttentionDrop": "harness.regularizers.drop",
    "InputError": "harness.errors",
    "Regularizer": "harness.regularizers.base",
    "Site": "harness.regularizers.base",
    "Trial": "harness.trials.trial",
    "attend": "harness.models.attention",
    "regularize": "harness.models.regularize",
    "sites": "harness.models.regularize",
    "unregularize": "harness.models.regularize",
}


moved.install()


def __getattr__(name: str) -> object:
    """Import on first use: the command line must start without torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'harness' has no attribute '{name}'")
    value = load(f"{_WHERE[name]}:{name}")
    globals()[name] = value
    return value
