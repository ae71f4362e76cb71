"""A trial's regularizer: bind it to the model, compute the loss that it changes, average it, and turn it off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError, UnsuitableError
from dropbench.harness.memory import checkpoint_activations
from dropbench.harness.models.regularize import DEFAULT_KINDS, Report, bind, find_patches
from dropbench.harness.models.sites import set_on_sites, sites
from dropbench.harness.optimization.catalog import LORA
from dropbench.harness.optimization.freezing import freeze
from dropbench.harness.optimization.options import Lora
from dropbench.harness.registry import load_for
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.passes import Passes, loss_of_passes
from dropbench.harness.training.data_loading import repeat_batch
from dropbench.harness.trials.task import Task
from dropbench.harness.trials.trial import Trial


def bind_trial(model: nn.Module, trial: Trial) -> Report:
    """Freeze parameters of a model, add LoRA to it, regularize it and set how it computes, as its trial defines.

    Raises:
        InputError: as for `regularize`, `freeze` and `add_lora`; or the model has nothing that a key acts on.
    """
    recipe = trial.recipe
    if (patterns := recipe.get("freeze")) is not None:
        freeze(model, patterns)
    if (lora := recipe.get("lora")) is not None:
        load_for("lora", LORA)(model, Lora(**lora))
    kinds = recipe.get("kinds") or DEFAULT_KINDS
    params: dict[str, Any] = trial.regularizer.params
    # Looked up before: the lookup reads weights, and one that a regularizer computes changes with each use.
    layers = layers_of(model) if recipe.get("checkpoint_activations") else []
    report = bind(model, trial.regularizer.name, schedule=trial.schedule, kinds=kinds, **params)
    if recipe.get("channels_last"):
        if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
            raise InputError(f"recipe: channels_last: model '{trial.model}' has no convolutions: remove it")
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.get("checkpoint_activations") and not layers:
        raise InputError(f"recipe: checkpoint_activations: model '{trial.model}' has no layers: remove it")
    checkpoint_activations(layers)
    return report


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model, as regularizers of layers find them."""
    return [patch.module for patch in find_patches(model) if patch.site.kind == "layer"]


def drop_nothing(model: nn.Module) -> None:
    """Turn regularization off permanently; the model's own attention dropout stays replaced."""
    for site in sites(model):
        for part in (site, *site.parts):
            part.ratio = part.scheduled_ratio = 0.0


@contextmanager
def monte_carlo(model: nn.Module, mc_samples: int) -> Iterator[None]:
    """Evaluate a model with its mean attention weights over `mc_samples` masks in the context (DropKey, Table 4).

    Masks are sampled per forward pass and site, from torch's default generator. With 0 samples nothing changes.
    """
    averaged_sites = [site for site in sites(model) if site.regularizer is not None]
    with set_on_sites(averaged_sites, "mc_samples", mc_samples):
        yield


def check_objective(regularizer: Regularizer, task: type[Task], name: str) -> None:
    """Raise UnsuitableError if the loss of a task cannot be regularized."""
    if regularizer.has_objective and not task.gives_logits():
        raise UnsuitableError(
            f"regularizer {name}: it needs class scores, which task '{task.name}' does not give: choose another task"
        )


def regularized_loss(
    regularizer: Regularizer,
    task: Task,
    model: nn.Module,
    batch: Any,
    bound: Sequence[Site],
    progress: float | None,
    epoch: int,
) -> Tensor:
    """Return the task's loss of a micro-batch, the mean over the regularizer's passes, plus its objective.

    Several passes are one pass of a larger batch, unless the regularizer draws once per batch. While the strength is 0,
    the loss is the task's. `progress` and `epoch` are those of `Passes`.
    """
    if not (regularizer.has_objective and regularizer.strength_at(progress) > 0.0):
        return task.loss(model, batch)

    def forward(part: Any) -> tuple[Tensor, Tensor]:
        return task.loss_and_logits(model, part)

    return loss_of_passes(regularizer, Passes(forward, batch, bound, progress, epoch), repeat_batch)
