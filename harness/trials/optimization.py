"""Optimizers, the learning rate as a function of the step, and what a micro-batch counts in a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from dropbench.harness.errors import InputError
from dropbench.harness.optimization.catalog import OPTIMIZERS, TRANSFORMERS_SCHEDULES, TransformersSchedule
from dropbench.harness.optimization.layers import head_parameters, parameter_layers
from dropbench.harness.registry import load_for
from dropbench.harness.trials.recipe import Recipe

BACKBONE = "backbone."
"""The prefix of a backbone's parameters, in every model that has one."""


class Share(NamedTuple):
    """A micro-batch as a part of the whole batch of an optimizer step, over all micro-batches and processes.

    Attributes:
        weight: its share of the loss terms, above 0 and at most 1.
        targets: `Task.num_targets` of the whole batch.
        extent: `Task.extent` of the whole micro-batch, of which this may be a part.
    """

    weight: float
    targets: tuple[float, ...]
    extent: tuple[int, ...] = ()


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; vectors (biases, norms) and position embeddings have no weight decay.

    Each group has a `share`, by which `set_rate` multiplies the learning rate.

    Raises:
        InputError: the model has no head for `head_lr`, or not the layers for `layer_decay`.
    """
    shares = rate_shares(model, recipe)
    parameters_of_group: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, True): [], (1.0, False): []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            vector = parameter.ndim < 2 or "pos_embed" in name or "positions" in name or "cls_token" in name
            decayed = bool(recipe.decay_all) or not vector
            parameters_of_group.setdefault((shares.get(name, 1.0), decayed), []).append(parameter)
    groups = [
        {"params": parameters, "weight_decay": recipe.weight_decay if decayed else 0.0, "share": share}
        for (share, decayed), parameters in parameters_of_group.items()
        if parameters
    ]
    return OPTIMIZERS.get(recipe.optimizer)(groups, recipe)


def rate_shares(model: nn.Module, recipe: Recipe) -> dict[str, float]:
    """Return the learning rates of parameters as shares of the recipe's, by name; of those left out it is 1.

    Layer l of L has the share `layer_decay` ** (L - l) (Clark et al. 2020, Appendix B; Bao et al. 2022, Section 3.1).

    Raises:
        InputError: as for `build_optimizer`.
    """
    shares: dict[str, float] = {}
    if recipe.backbone_lr is not None:
        shares = {name: recipe.backbone_lr for name, _ in model.named_parameters() if name.startswith(BACKBONE)}
    if recipe.layer_decay is not None:
        layers = parameter_layers(model)
        last = max(layers.values())
        decays = {name: recipe.layer_decay ** (last - layer) for name, layer in layers.items()}
        shares = {name: shares.get(name, 1.0) * decay for name, decay in decays.items()}
    if recipe.head_lr is not None:
        if not (head := head_parameters(model)):
            raise InputError(f"recipe: head_lr={recipe.head_lr:g}: the model has no head of its own: remove it")
        shares |= dict.fromkeys(head, recipe.head_lr / recipe.lr)
    return shares


def check_rates(model: nn.Module, recipe: Recipe, given: Collection[str]) -> None:
    """Raise InputError for learning rates that a model or a schedule cannot have; `given` are the overridden keys."""
    if "backbone_lr" in given and not any(name.startswith(BACKBONE) for name, _ in model.named_parameters()):
        raise InputError("recipe: backbone_lr: the model has no backbone: remove it")
    rate_shares(model, recipe)
    learning_rate(recipe, 0, 100)


def divide_gradients(model: nn.Module, number: float) -> None:
    """Divide every gradient of a model, in place."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    torch._foreach_mul_(gradients, 1 / number)


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> None:
    """Scale the gradients such that their total norm is at most `max_norm`, as `nn.utils.clip_grad_norm_` does."""
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    # A multiplication by 1 is saved on CPUs; on a GPU, the comparison would wait for it.
    if norm.device.type != "cpu" or not norm + 1e-6 <= max_norm:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Return the rate of optimizer step `step` (from 0) of `steps`: linear warm-up, then the recipe's schedule."""
    if recipe.lr_schedule == "timm-cosine":
        return _timm_cosine(recipe, step, steps)
    warmup = _in_steps(recipe.warmup, recipe.warmup < 1, steps)
    of_transformers = recipe.lr_schedule in get_args(TransformersSchedule)
    if of_transformers or (warmup and recipe.warmup_lr == 0.0):
        warmup = math.ceil(warmup)  # as in transformers, where every warm-up begins at 0
    if of_transformers:
        options = tuple(sorted((recipe.lr_options or {}).items()))
        return recipe.lr * _of_transformers(recipe.lr_schedule, recipe.lr, int(warmup), steps, options)(step)
    if step < warmup:
        if recipe.warmup_lr is not None:
            return recipe.warmup_lr + (recipe.lr - recipe.warmup_lr) * step / warmup
        return recipe.lr * (step + 1) / (math.floor(warmup) + 1)
    if recipe.lr_schedule == "constant":
        return recipe.lr
    if recipe.lr_schedule == "inverse-sqrt":
        return recipe.lr * math.sqrt(max(warmup, 1.0) / max(step, 1.0))
    if recipe.lr_drop is not None:
        drop = _in_steps(recipe.lr_drop, recipe.lr_drop <= 1, steps)
        return recipe.lr if step < drop else recipe.lr / 10
    progress = min(1.0, (step - warmup) / max(1.0, _decay_end(recipe, steps) - warmup))
    factor = 0.5 * (1 + math.cos(math.pi * progress)) if recipe.lr_schedule == "cosine" else 1 - progress
    return recipe.min_lr + (recipe.lr - recipe.min_lr) * factor


def _timm_cosine(recipe: Recipe, step: int, steps: int) -> float:
    """Return the rate as timm's `CosineLRScheduler` does by default.

    The cosine starts at step 0, and its first part is replaced by the warm-up. Both are rounded to whole epochs, within
    which the rate is constant. A recipe with `steps` has no epochs: there the rate changes per step.
    """
    epochs = recipe.epochs or steps
    epoch = step * epochs // steps
    warmup = round(_in_steps(recipe.warmup, recipe.warmup < 1, steps) * epochs / steps)
    if epoch < warmup:
        start = recipe.warmup_lr or 0.0
        return start + (recipe.lr - start) * epoch / warmup
    progress = min(1.0, epoch / max(1, round(_decay_end(recipe, steps) * epochs / steps)))
    return recipe.min_lr + 0.5 * (recipe.lr - recipe.min_lr) * (1 + math.cos(math.pi * progress))


@lru_cache
def _of_transformers(name: str, lr: float, warmup: int, steps: int, options: tuple[Any, ...]) -> Callable[[int], float]:
    schedule: Callable[[int], float] = load_for(f"lr_schedule={name}", TRANSFORMERS_SCHEDULES)(
        name, lr, warmup, steps, dict(options)
    )
    return schedule


def _decay_end(recipe: Recipe, steps: int) -> float:
    """Return the step at which the decay of the learning rate ends."""
    end = recipe.lr_decay_steps or 1.0
    return _in_steps(end, end <= 1, steps)


def _in_steps(value: float, is_share: bool, steps: int) -> float:
    return value * steps if is_share else value
