"""Regularize a trial's model, and evaluate it with the mean weights over many draws, or no drops (DropKey, Table 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from harness.models.regularize import DEFAULT_KINDS, Report, bind, set_on_sites, sites
from harness.models.regularize import through_attend as through_attend
from harness.trials.trial import Trial


def bind_trial(model: nn.Module, trial: Trial) -> Report:
    """Regularize a model as its trial defines; raises InputError as `regularize` does."""
    kinds = trial.recipe.get("kinds") or DEFAULT_KINDS
    params: dict[str, Any] = trial.regularizer.params
    return bind(model, trial.regularizer.name, schedule=trial.schedule, kinds=kinds, **params)


def drop_nothing(model: nn.Module) -> None:
    """Turn regularization off permanently; the model's own attention dropout stays replaced."""
    for site in sites(model):
        for part in (site, *site.parts):
            part.ratio = part.scheduled_ratio = 0.0


@contextmanager
def monte_carlo(model: nn.Module, mc_samples: int) -> Iterator[None]:
    """Evaluate a regularized model with its mean attention weights over `mc_samples` masks while the context is open.

    Masks are sampled per forward pass and site, from torch's default generator. With 0 samples nothing changes.
    """
    averaged_sites = [site for site in sites(model) if site.regularizer is not None]
    with set_on_sites(averaged_sites, "mc_samples", mc_samples):
        yield
