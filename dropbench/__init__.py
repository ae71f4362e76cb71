"""DropBench: attention regularizers, and a harness that benchmarks them on ten tasks.

Importing it makes libraries importable whose releases do not fit together (`dropbench.adapters.compat`), and nothing
else: each name below is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dropbench.adapters  # noqa: F401 - installs the shims
from dropbench.harness.registry import lazy_attributes

if TYPE_CHECKING:
    from dropbench.api import results as results
    from dropbench.api import run as run
    from dropbench.api import trial as trial
    from dropbench.harness.analysis import ANALYSES as ANALYSES
    from dropbench.harness.analysis import Findings as Findings
    from dropbench.harness.attention.call import Call as Call
    from dropbench.harness.checking.check import check as check
    from dropbench.harness.checking.findings import Check as Check
    from dropbench.harness.errors import InputError as InputError
    from dropbench.harness.models.attention import attend as attend
    from dropbench.harness.models.catalog import MODELS as MODELS
    from dropbench.harness.models.regularize import regularize as regularize
    from dropbench.harness.models.regularize import unregularize as unregularize
    from dropbench.harness.models.sites import set_progress as set_progress
    from dropbench.harness.models.sites import sites as sites
    from dropbench.harness.models.training_loss import training_loss as training_loss
    from dropbench.harness.optimization.catalog import OPTIMIZERS as OPTIMIZERS
    from dropbench.harness.predictions.schema import Ratio as Ratio
    from dropbench.harness.predictions.schema import content_id as content_id
    from dropbench.harness.regularizers import REGULARIZERS as REGULARIZERS
    from dropbench.harness.regularizers.around import AroundAttention as AroundAttention
    from dropbench.harness.regularizers.around import PlainAttention as PlainAttention
    from dropbench.harness.regularizers.base import Regularizer as Regularizer
    from dropbench.harness.regularizers.base import Site as Site
    from dropbench.harness.regularizers.drop import AttentionDrop as AttentionDrop
    from dropbench.harness.regularizers.output import SiteModule as SiteModule
    from dropbench.harness.regularizers.output import WeightModule as WeightModule
    from dropbench.harness.regularizers.passes import Passes as Passes
    from dropbench.harness.trials.metric import Metric as Metric
    from dropbench.harness.trials.recipe import Recipe as Recipe
    from dropbench.harness.trials.task import TASKS as TASKS
    from dropbench.harness.trials.task import Task as Task
    from dropbench.harness.trials.trial import Trial as Trial
    from dropbench.tasks.classifier import Classifier as Classifier
    from dropbench.tasks.data import DATASETS as DATASETS
    from dropbench.tasks.data import Dataset as Dataset
    from dropbench.tasks.data import Layout as Layout
    from dropbench.tasks.data.classification import ImageClassificationData as ImageClassificationData
    from dropbench.tasks.data.classification import ImageSplit as ImageSplit
    from dropbench.tasks.data.classification import TextClassificationData as TextClassificationData
    from dropbench.tasks.data.classification import TextSplit as TextSplit
    from dropbench.tasks.data.read import ThreeSplits as ThreeSplits
    from dropbench.tasks.images.spec import AUGMENTATIONS as AUGMENTATIONS
    from dropbench.tasks.preset_task import PresetTask as PresetTask

_NAMES = {
    "dropbench.api": ("results", "run", "trial"),
    "dropbench.harness.analysis": ("ANALYSES", "Findings"),
    "dropbench.harness.attention.call": ("Call",),
    "dropbench.harness.checking.check": ("check",),
    "dropbench.harness.checking.findings": ("Check",),
    "dropbench.harness.errors": ("InputError",),
    "dropbench.harness.models.attention": ("attend",),
    "dropbench.harness.models.catalog": ("MODELS",),
    "dropbench.harness.models.regularize": ("regularize", "unregularize"),
    "dropbench.harness.models.sites": ("set_progress", "sites"),
    "dropbench.harness.models.training_loss": ("training_loss",),
    "dropbench.harness.optimization.catalog": ("OPTIMIZERS",),
    "dropbench.harness.predictions.schema": ("Ratio", "content_id"),
    "dropbench.harness.regularizers": ("REGULARIZERS",),
    "dropbench.harness.regularizers.around": ("AroundAttention", "PlainAttention"),
    "dropbench.harness.regularizers.base": ("Regularizer", "Site"),
    "dropbench.harness.regularizers.drop": ("AttentionDrop",),
    "dropbench.harness.regularizers.output": ("SiteModule", "WeightModule"),
    "dropbench.harness.regularizers.passes": ("Passes",),
    "dropbench.harness.trials.metric": ("Metric",),
    "dropbench.harness.trials.recipe": ("Recipe",),
    "dropbench.harness.trials.task": ("TASKS", "Task"),
    "dropbench.harness.trials.trial": ("Trial",),
    "dropbench.tasks.classifier": ("Classifier",),
    "dropbench.tasks.data": ("DATASETS", "Dataset", "Layout"),
    "dropbench.tasks.data.classification": (
        "ImageClassificationData",
        "ImageSplit",
        "TextClassificationData",
        "TextSplit",
    ),
    "dropbench.tasks.data.read": ("ThreeSplits",),
    "dropbench.tasks.images.spec": ("AUGMENTATIONS",),
    "dropbench.tasks.preset_task": ("PresetTask",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_MODULES)

__getattr__ = lazy_attributes(__name__, _MODULES)
