"""DropBench: attention regularizers, and a harness that benchmarks them on nine tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import moved
from harness.registry import load

if TYPE_CHECKING:
    from harness.errors import InputError as InputError
    from harness.models.attention import attend as attend
    from harness.models.regularize import regularize as regularize
    from harness.models.regularize import sites as sites
    from harness.models.regularize import unregularize as unregularize
    from harness.regularizers import REGULARIZERS as REGULARIZERS
    from harness.regularizers.base import Regularizer as Regularizer
    from harness.regularizers.base import Site as Site
    from harness.regularizers.drop import AttentionDrop as AttentionDrop
    from harness.trials.trial import Trial as Trial

_MODULES = {
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
__all__ = list(_MODULES)

moved.install()


def __getattr__(name: str) -> object:
    """Import on first use: the command line must start without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'harness' has no attribute '{name}'")
    value = load(f"{_MODULES[name]}:{name}")
    globals()[name] = value
    return value
