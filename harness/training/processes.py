"""The processes that train a trial together: sums over them, and their common log and events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import nn

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import shared_draws
from dropbench.harness.training.tracking import Tracking


class Processes:
    """One of the processes of a run, with its accelerator, run directory and trackers."""

    accelerator: Accelerator
    model: nn.Module
    directory: RunDirectory
    tracking: Tracking

    @property
    def alone(self) -> bool:
        """True if the run has one process."""
        return bool(self.accelerator.num_processes == 1)

    @contextmanager
    def micro_batch(self, shared_seed: int, *, synchronizes: bool) -> Iterator[None]:
        """Compute the loss of a micro-batch, with the seed of the draws that all processes share.

        Its backward pass averages the gradients over the processes if it synchronizes.
        """
        with (
            self.accelerator.autocast(),
            nullcontext() if synchronizes else self.accelerator.no_sync(self.model),
            nullcontext() if self.alone else shared_draws(shared_seed),
        ):
            yield

    def any_rank(self, condition: bool) -> bool:
        """Return whether the condition holds in any process, so that all processes act alike."""
        return self.all_reduce_sum(float(condition)) > 0

    def all_reduce_sum(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        if self.alone:
            return number
        return float(self.accelerator.reduce(torch.tensor(number, device=self.accelerator.device)))

    def average_gradients(self, model: nn.Module) -> None:
        """Average the gradients of a model over all processes, and give them the buffers of the first.

        Unlike DistributedDataParallel, it allows parameters without a gradient: a parameter that some processes use has
        the gradient 0 in the others, and one that none uses has no gradient anywhere.
        """
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        own = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
        users = self.accelerator.reduce(own.to(self.accelerator.device)).tolist()
        for parameter, number in zip(parameters, users, strict=True):
            if number:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = self.accelerator.reduce(gradient, "mean")
        for buffer in model.buffers():
            buffer.copy_(broadcast(buffer))

    def log(self, line: str) -> None:
        """Print a line to the log, from the main process alone."""
        if self.accelerator.is_main_process:
            print(line, flush=True)

    def event(self, event: str, **fields: Any) -> None:
        """Append to ``events.jsonl``, from the main process alone."""
        if self.accelerator.is_main_process:
            self.directory.append_event(event, **fields)
            self.tracking.event(event, fields)
