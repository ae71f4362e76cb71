"""torch's optimizers by the recipe's keys."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

Groups = list[dict[str, Any]]


def adamw(groups: Groups, recipe: Any) -> Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019)."""
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(recipe.beta1, recipe.beta2), fused=True)


def adam(groups: Groups, recipe: Any) -> Optimizer:
    """Return Adam (Kingma and Ba 2015)."""
    return torch.optim.Adam(groups, lr=recipe.lr, betas=(recipe.beta1, recipe.beta2), fused=True)


def sgd(groups: Groups, recipe: Any) -> Optimizer:
    """Return SGD with momentum.

    Fused, SGD fails if a parameter has its first gradient after others, and starts from uninitialized momentum if the
    first scaled gradients overflow.
    """
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)
