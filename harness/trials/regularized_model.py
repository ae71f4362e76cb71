"""Regularize a model as a trial says."""

from __future__ import annotations

from torch import nn

from harness.models.regularize import DEFAULT_KINDS, Report, bind
from harness.trials.trial import Trial


def bind_trial(model: nn.Module, trial: Trial) -> Report:
    """Regularize a model as a trial says; raises InputError as `regularize` does."""
    kinds = trial.recipe.get("kinds") or DEFAULT_KINDS
    return bind(model, trial.regularizer.build(), schedule=trial.schedule, kinds=kinds)
