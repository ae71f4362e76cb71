"""One small model of each of timm's files: (images) → scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import timm
import torch
from timm.models import _registry
from torch import nn

from dropbench.harness.interception.models import attention_modules

SIDES = (64, 96, 128)
"""Sizes of images to try before the model's own, in pixels."""
MAX_PARAMETERS = 120_000_000


def families() -> dict[str, str]:
    """Return the name of the smallest model with attention in each file of timm; the first one, if none has."""
    names = defaultdict(list)
    for name in timm.list_models():
        names[_registry._model_to_module[name]].append(name)
    return {family: _smallest(models) for family, models in sorted(names.items())}


def _smallest(models: list[str]) -> str:
    costs: dict[tuple[bool, int], str] = {}
    for name in models:
        try:
            with torch.device("meta"):
                model: Any = timm.create_model(name)
        except Exception:  # some models draw numbers that meta tensors have not
            continue
        side: int = model.pretrained_cfg.get("input_size", (3, 224, 224))[-1]
        cost = sum(parameter.numel() for parameter in model.parameters()) * side**2
        costs[(not attention_modules(model), cost)] = name
    return costs[min(costs)] if costs else models[0]


def build(name: str) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    """Return a model with random weights, for small images if it takes them, and what calls it."""
    own: int = timm.models.get_pretrained_cfg(name).input_size[-1]  # type: ignore[union-attr]
    for options in ({"img_size": side} for side in SIDES):
        try:
            return _built(name, options["img_size"], **options)
        except Exception:  # a size that the model does not take, in words that each family chooses
            continue
    for side in (*SIDES[1:], own):
        try:
            return _built(name, side)
        except Exception:
            if side == own:
                raise
    raise AssertionError


def _built(name: str, side: int, **options: Any) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    torch.manual_seed(0)
    model = timm.create_model(name, **options).eval()
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        model(images)
    return model, lambda model: model(images)
