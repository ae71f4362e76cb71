"""DropBench: attention regularizers, and a harness that benchmarks them on nine tasks.

Importing it makes libraries importable whose releases do not fit together (`adapters.compat`), and nothing else: each
name below is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import adapters  # noqa: F401 - installs the shims
from harness.registry import lazy_attributes

if TYPE_CHECKING:
    from dropbench.api import results as results
    from dropbench.api import run as run
    from dropbench.api import trial as trial
    from harness.analysis import ANALYSES as ANALYSES
    from harness.analysis import Findings as Findings
    from harness.attention.call import Call as Call
    from harness.errors import InputError as InputError
    from harness.models.attention import attend as attend
    from harness.models.catalog import MODELS as MODELS
    from harness.models.regularize import regularize as regularize
    from harness.models.regularize import set_progress as set_progress
    from harness.models.regularize import sites as sites
    from harness.models.regularize import unregularize as unregularize
    from harness.models.training_loss import training_loss as training_loss
    from harness.regularizers import REGULARIZERS as REGULARIZERS
    from harness.regularizers.around import AroundAttention as AroundAttention
    from harness.regularizers.around import PlainAttention as PlainAttention
    from harness.regularizers.base import Regularizer as Regularizer
    from harness.regularizers.base import Site as Site
    from harness.regularizers.drop import AttentionDrop as AttentionDrop
    from harness.regularizers.output import SiteModule as SiteModule
    from harness.regularizers.output import WeightModule as WeightModule
    from harness.regularizers.passes import Passes as Passes
    from harness.trials.metric import Metric as Metric
    from harness.trials.task import TASKS as TASKS
    from harness.trials.trial import Trial as Trial
    from tasks.data import DATASETS as DATASETS
    from tasks.data import Dataset as Dataset
    from tasks.data import Layout as Layout
    from tasks.data.classification import ImageClassificationData as ImageClassificationData
    from tasks.data.classification import ImageSplit as ImageSplit
    from tasks.data.classification import TextClassificationData as TextClassificationData
    from tasks.data.classification import TextSplit as TextSplit
    from tasks.data.read import ThreeSplits as ThreeSplits
    from tasks.preset_task import PresetTask as PresetTask

_NAMES = {
    "dropbench.api": ("results", "run", "trial"),
    "harness.analysis": ("ANALYSES", "Findings"),
    "harness.attention.call": ("Call",),
    "harness.errors": ("InputError",),
    "harness.models.attention": ("attend",),
    "harness.models.catalog": ("MODELS",),
    "harness.models.regularize": ("regularize", "set_progress", "sites", "unregularize"),
    "harness.models.training_loss": ("training_loss",),
    "harness.regularizers": ("REGULARIZERS",),
    "harness.regularizers.around": ("AroundAttention", "PlainAttention"),
    "harness.regularizers.base": ("Regularizer", "Site"),
    "harness.regularizers.drop": ("AttentionDrop",),
    "harness.regularizers.output": ("SiteModule", "WeightModule"),
    "harness.regularizers.passes": ("Passes",),
    "harness.trials.metric": ("Metric",),
    "harness.trials.task": ("TASKS",),
    "harness.trials.trial": ("Trial",),
    "tasks.data": ("DATASETS", "Dataset", "Layout"),
    "tasks.data.classification": ("ImageClassificationData", "ImageSplit", "TextClassificationData", "TextSplit"),
    "tasks.data.read": ("ThreeSplits",),
    "tasks.preset_task": ("PresetTask",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_MODULES)

__getattr__ = lazy_attributes(__name__, _MODULES)
