"""The engine: regularizers, attention, trials and runs.

Plug-ins of 0.1 import the names below from here. The public package is `dropbench`, which has them all.
"""

from __future__ import annotations

from harness import moved
from harness.registry import load

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
