"""Schedules of the learning rate as in transformers, and LoRA by peft."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION, get_scheduler

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.optimization.layers import head_parameters
from dropbench.harness.optimization.options import Lora

FILLED_IN = ("optimizer", "num_warmup_steps", "num_training_steps", "last_epoch")
"""Arguments of schedules that follow from a trial."""


def schedule(
    name: str, lr: float, warmup: int, steps: int, options: Mapping[str, bool | int | float | str]
) -> Callable[[int], float]:
    """Return a schedule of transformers: the learning rate of a step, from 0, as a share of the peak rate `lr`.

    Args:
        name: transformers' name of the schedule.
        lr: the peak rate.
        warmup: steps of the warm-up.
        steps: all steps.
        options: further arguments of the schedule's function.

    Raises:
        InputError: an option is unknown, missing or impossible.
    """
    known = [key for key in inspect.signature(TYPE_TO_SCHEDULER_FUNCTION[name]).parameters if key not in FILLED_IN]
    for key in options:
        if key not in known:
            raise unknown_name(f"recipe key of lr_options with lr_schedule={name}", key, known)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    try:
        scheduler: Any = get_scheduler(name, optimizer, warmup, steps, dict(options))
        multiplier: Callable[[int], float] = scheduler.lr_lambdas[0]
        multiplier(steps)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"recipe: lr_options with lr_schedule={name}: {error}: expected {', '.join(known)}") from None
    return multiplier


def add_lora(model: nn.Module, options: Lora) -> None:
    """Add low-rank adapters to a model, in place, and freeze all other parameters but those of its head.

    Parameters of the head that are frozen stay so.

    Raises:
        InputError: a target is no linear map of the model, or peft knows no targets for it.
    """
    import peft  # which the schedules do not need

    head = {name for name, parameter in model.named_parameters() if parameter.requires_grad} & head_parameters(model)
    targets = options.targets or _usual_targets(model)
    kinds = (nn.Linear, nn.Embedding, nn.Conv2d, nn.MultiheadAttention, peft.tuners.lora.layer.Conv1D)
    maps = [path for path, module in model.named_modules() if isinstance(module, kinds)]
    ends = {".".join(path.split(".")[start:]) for path in maps for start in range(path.count(".") + 1)}
    usual = sorted({path.rpartition(".")[2] for path in maps})
    if not targets:
        raise InputError(f"recipe: lora: peft knows no targets for this model: set lora.targets, of {', '.join(usual)}")
    for target in targets:
        if target not in ends:
            raise unknown_name("linear map in lora.targets", target, usual)
    peft.inject_adapter_in_model(
        peft.LoraConfig(
            r=options.r, lora_alpha=options.alpha, lora_dropout=options.dropout, target_modules=list(targets)
        ),
        model,
    )
    for name, parameter in model.named_parameters():
        if name in head:
            parameter.requires_grad_(True)


def _usual_targets(model: nn.Module) -> list[str]:
    """Return the targets that peft has for a model of transformers, or one around it; [] if it has none."""
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as MAPPING

    kinds = (getattr(getattr(module, "config", None), "model_type", None) for module in model.modules())
    targets: Any = next((MAPPING[kind] for kind in kinds if kind in MAPPING), [])
    return [targets] if isinstance(targets, str) else list(targets)
