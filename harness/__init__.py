"""The engine: regularizers, attention, trials and runs.

Plug-ins of 0.1 import the names below from here. The public package is `dropbench`, which has them all.
"""

from __future__ import annotations

from harness import moved
from harness.registry import lazy_attributes

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

# On first use, because the command line must start without torch.
__getattr__ = lazy_attributes(__name__, _MODULES)
