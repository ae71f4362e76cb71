"""The loss of a micro-batch with a regularizer that changes it (`Regularizer.objective`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from harness.errors import UnsuitableError
from harness.regularizers.base import Regularizer, Site
from harness.regularizers.passes import Passes, loss_of_passes
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

    return loss_of_passes(regularizer, Passes(forward, batch, sites, progress, epoch), task.repeat)
