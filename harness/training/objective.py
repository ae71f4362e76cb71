"""The loss of a micro-batch with a regularizer that changes it (`Regularizer.objective`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import UnsuitableError
from harness.regularizers.base import Regularizer, Site
from harness.regularizers.passes import Passes
from harness.trials.task import Task


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
    sites: Sequence[Site],
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

    passes = Passes(forward, batch, sites, progress, epoch)
    regularizer.prepare(passes)
    number = regularizer.passes_at(progress)
    if number == 1 or regularizer.draws_per_batch:
        losses, logits = zip(*(passes.run(batch) for _ in range(number)), strict=True)
        passes.loss, passes.logits = torch.stack(losses).mean(), logits
    else:
        passes.loss, joined = passes.run(task.repeat(batch, number))
        passes.logits = joined.chunk(number)
    term = regularizer.objective(passes)
    return passes.loss if term is None else passes.loss + term
