"""DropBench: attention regularisers, and the harness that tries them on nine kinds of task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.registry import load

if TYPE_CHECKING:
    from harness.attention import attend
    from harness.binding import regularize, sites, unregularize
    from harness.errors import InputError
    from harness.regularizers import REGULARIZERS
    from harness.regularizers.base import Regularizer
    from harness.regularizers.drop import AttentionDrop
    from harness.site import Site
    from harness.trial import Trial

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
    "Site": "harness.site",
    "Trial": "harness.trial",
    "attend": "harness.attention",
    "regularize": "harness.binding",
    "sites": "harness.binding",
    "unregularize": "harness.binding",
}

# Old libraries need a shim before their first import, and users import them after us. The shim is imported by a lazy
# target, as everything above this folder is.
load("adapters.compat:install")()


def __getattr__(name: str) -> object:
    """Import on first use: the command line must start without torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'harness' has no attribute '{name}'")
    value = load(f"{_WHERE[name]}:{name}")
    globals()[name] = value
    return value
