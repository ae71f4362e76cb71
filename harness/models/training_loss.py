"""`training_loss`: the loss of a regularized model in a training loop of your own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.models.regularize import OBJECTIVE
from dropbench.harness.models.sites import set_progress, sites, sites_of
from dropbench.harness.regularizers.auxiliary_loss import penalty, with_penalty
from dropbench.harness.regularizers.passes import Forward, Passes, loss_of_passes


def training_loss(
    model: nn.Module, forward: Forward, batch: Any, *, step: int = 0, progress: float | None = None, epoch: int = 0
) -> Tensor:
    """Return the loss of a batch, with all terms that the model's regularizer adds to it.

    `forward` is called once, or as often as the regularizer compares passes. Other regularizers need no such loss.
    Penalties of passes before this call, whose loss nothing has used, do not count.

    Args:
        model: a model after `regularize`, in training; it may be compiled, wrapped, or a part of this one.
        forward: batch → the loss, and the class scores (…, C) of its terms. It may call a wrapped model.
        batch: whatever `forward` accepts.
        step: the optimizer step, from 0, for coefficients of penalties.
        progress: the share of all steps that are done, from 0 to 1, for schedules over steps; None: at full strength.
        epoch: the epoch of the batch, from 0, for regularizers that alternate.

    Raises:
        InputError: several parts of the model were regularized, each with a term of its own; or all that is regularized
            is in evaluation mode, in which no regularizer acts.
    """
    regularized = [module for module in model.modules() if sites_of(module)]
    if regularized and not any(module.training for module in regularized):
        raise InputError(
            f"training_loss: {type(model).__name__} is in evaluation mode, in which no regularizer acts: call"
            " `model.train()` first, or compute the loss of an evaluation without `training_loss`"
        )
    with torch.random.fork_rng(devices=[]):  # a penalty of passes before this call may draw
        penalty(model, step)
    if progress is not None:
        set_progress(model, progress)
    objectives = [vars(module)[OBJECTIVE] for module in model.modules() if OBJECTIVE in vars(module)]
    if len(objectives) > 1:
        raise InputError(
            f"training_loss: {len(objectives)} parts of {type(model).__name__} have regularizers that change the loss:"
            " regularize the whole model in one call"
        )
    regularizer = objectives[0] if objectives else None
    if regularizer is None or regularizer.strength_at(progress) == 0.0:
        loss, _ = forward(batch)
    else:
        bound = [site for site in sites(model) if site.regularizer is regularizer]
        loss = loss_of_passes(regularizer, Passes(forward, batch, bound, progress, epoch), None)
    return with_penalty(loss, model, step)
