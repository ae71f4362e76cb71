"""One small model of each of timm's files: (images) → scores."""

from __future__ import annotations

import re
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
SMALL = "test_|botnet26t|halonet26t|zepto|pico|nano|atto|femto|xxs|xxt|tiny|mini|_xs|small|_[st0-2](_|$)"
"""Words in names of small models, and of those of byoanet that attend."""
CANDIDATES = 6
MAX_PARAMETERS = 100_000_000
"""Larger models are built with two layers."""


def families() -> dict[str, list[str]]:
    """Return the names of the models in each file of timm."""
    names = defaultdict(list)
    for name in timm.list_models():
        names[_registry._model_to_module[name]].append(name)
    return dict(sorted(names.items()))


def smallest(models: list[str]) -> str:
    """Return the cheapest model with attention, among those whose names and images are small; any, if none has."""
    models = sorted(models, key=lambda name: (not re.search(SMALL, name), _side(name)))[:CANDIDATES]
    costs: dict[tuple[bool, int], str] = {}
    for name in models:
        try:
            with torch.device("meta"):
                model: Any = timm.create_model(name)
        except Exception:  # some models draw numbers that meta tensors have not
            continue
        cost = sum(parameter.numel() for parameter in model.parameters()) * _side(name) ** 2
        costs[(not attention_modules(model), cost)] = name
    return costs[min(costs)] if costs else models[0]


def _side(name: str) -> int:
    """Return the size of a model's own images, in pixels."""
    config = timm.models.get_pretrained_cfg(name)
    return config.input_size[-1] if config else 224


def build(name: str) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    """Return a model with random weights, for small images if it takes them, and what calls it."""
    own = _side(name)
    fewer = {"depth": 2} if _parameters(name) > MAX_PARAMETERS else {}
    if fewer and _parameters(name, **fewer) > MAX_PARAMETERS:
        raise ValueError(f"{_parameters(name, **fewer) / 1e6:.0f} million parameters")
    attempts = [(side, {"img_size": side, **fewer}) for side in SIDES]
    attempts += [(side, fewer) for side in (*SIDES[1:], own)]
    for side, options in attempts:
        try:
            return _built(name, side, **options)
        except Exception:  # a size that the model does not take, in words that each family chooses
            if (side, options) == attempts[-1]:
                raise
    raise AssertionError


def _parameters(name: str, **options: Any) -> int:
    with torch.device("meta"):
        model: Any = timm.create_model(name, **options)
    return sum(parameter.numel() for parameter in model.parameters())


def _built(name: str, side: int, **options: Any) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    torch.manual_seed(0)
    model = timm.create_model(name, **options).eval()
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        model(images)
    return model, lambda model: model(images)
