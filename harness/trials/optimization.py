"""Optimizers, the learning rate as a function of the step, and what a micro-batch counts in a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

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


def has_backbone(model: nn.Module) -> bool:
    """Return whether a model has parameters of a backbone, which `backbone_lr` is for."""
    return any(name.startswith(BACKBONE) for name, _ in model.named_parameters())


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; vectors (biases, norms) and position embeddings have no weight decay.

    Each group has a `share`, by which `set_rate` multiplies the learning rate.
    """
    parameters_of_group: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, True): [], (1.0, False): []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            vector = parameter.ndim < 2 or "pos_embed" in name or "positions" in name or "cls_token" in name
            share = (name.startswith(BACKBONE) and recipe.backbone_lr) or 1.0
            parameters_of_group.setdefault((share, bool(recipe.decay_all) or not vector), []).append(parameter)
    groups = [
        {"params": parameters, "weight_decay": recipe.weight_decay if decayed else 0.0, "share": share}
        for (share, decayed), parameters in parameters_of_group.items()
        if parameters
    ]
    if recipe.optimizer != "sgd":
        kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, lr=recipe.lr, betas=(recipe.beta1, recipe.beta2), fused=True)
    # Fused, SGD fails if a parameter has its first gradient after others, and starts from uninitialized momentum if the
    # first scaled gradients overflow.
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)


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


def _decay_end(recipe: Recipe, steps: int) -> float:
    """Return the step at which the decay of the learning rate ends."""
    end = recipe.lr_decay_steps or 1.0
    return _in_steps(end, end <= 1, steps)


def _in_steps(value: float, is_share: bool, steps: int) -> float:
    return value * steps if is_share else value
