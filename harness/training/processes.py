"""The processes that train a trial together: sums over them, common evaluations, and their common log and events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, broadcast_object_list
from torch import Tensor, nn

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import shared_draws
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import MicroBatch
from dropbench.harness.training.tracking import Tracking
from dropbench.harness.trials.optimization import Share
from dropbench.harness.trials.task import Task

Value = TypeVar("Value")


class Processes:
    """One of the processes of a run, with its accelerator, run directory and trackers."""

    accelerator: Accelerator
    task: Task
    settings: Settings
    seed: int
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
        return self.all_reduce_sum([float(condition)])[0] > 0

    def all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all processes."""
        return [*map(sum, zip(*self.all_gather(numbers), strict=True))]

    def all_gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers of each process."""
        if self.alone:
            return [[*numbers]]
        row = torch.tensor([numbers], dtype=torch.float64, device=self.accelerator.device)
        rows: list[list[float]] = self.accelerator.gather(row).tolist()
        return rows

    def shares(
        self, batch: Sequence[MicroBatch], requests: Sequence[float]
    ) -> tuple[list[tuple[float, Share | None]], float, list[float]]:
        """Return the loss terms and the share of each micro-batch, and the loss terms of all, over all processes.

        A micro-batch that stands in has neither. The last values are the sums of `requests` over all processes, for
        which a step would otherwise have to wait once more.
        """
        terms, targets, extents = list[float](), list[list[float]](), dict[int, list[float]]()
        for part, size, number, _ in batch:
            count, counts = self.task.num_loss_terms(part), size > 0
            terms.append(size if count is None or not counts else count)
            targets.append([counts * target for target in self.task.num_targets(part)])
            extent = [counts * length for length in self.task.extent(part)]
            extents[number] = [*map(max, extent, extents.get(number, extent))]
        # A micro-batch that several processes share is the last one of each.
        own, last = [sum(terms), *requests, *map(sum, zip(*targets, strict=True))], batch[-1].number
        rows = self.all_gather([*own, last, *extents[last]])
        step_terms, *sums = (sum(column) for column in zip(*(row[: len(own)] for row in rows), strict=True))
        shared = (row[len(own) + 1 :] for row in rows if row[len(own)] == last)
        extents[last] = [max(column) for column in zip(*shared, strict=True)]
        requested, step_targets = sums[: len(requests)], tuple(sums[len(requests) :])
        shares = (
            Share(number / step_terms, step_targets, tuple(map(int, extents[part.number]))) if number else None
            for number, part in zip(terms, batch, strict=True)
        )
        return [*zip(terms, shares, strict=True)], step_terms, requested

    def of_main(self, value: Value) -> Value:
        """Return the value of the main process, so that all processes decide alike."""
        values = [value]
        if not self.alone:
            broadcast_object_list(values)
        return values[0]

    def differs(self, value: object) -> bool:
        """Return whether any process has another value than the main one."""
        return self.any_rank(value != self.of_main(value))

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the buffers of the main process, such as the running statistics of BatchNorm."""
        if not self.alone:
            _as_one([*model.buffers()], broadcast)

    def average_gradients(self, model: nn.Module) -> None:
        """Average the gradients of a model over all processes, and share its buffers.

        Unlike DistributedDataParallel, it allows parameters without a gradient: a parameter that some processes use has
        the gradient 0 in the others, and one that none uses has no gradient anywhere.
        """
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        used = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
        used = used.to(self.accelerator.device)
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        _as_one([used, *gradients], self._mean)
        for parameter, gradient, share in zip(parameters, gradients, used.tolist(), strict=True):
            parameter.grad = gradient if share else None
        self.share_buffers(model)

    def _mean(self, tensor: Tensor) -> Tensor:
        mean: Tensor = self.accelerator.reduce(tensor, "mean")
        return mean

    def log(self, line: str) -> None:
        """Print a line to the log, from the main process alone."""
        if self.accelerator.is_main_process:
            print(line, flush=True)

    def event(self, event: str, **fields: Any) -> None:
        """Append to ``events.jsonl``, from the main process alone."""
        if self.accelerator.is_main_process:
            self.directory.append_event(event, **fields)
            self.tracking.event(event, fields)


def _as_one(tensors: Sequence[Tensor], operation: Callable[[Tensor], Tensor]) -> None:
    """Replace the values of tensors by those of a collective operation, which runs once per data type."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        group = [tensor for tensor in tensors if tensor.dtype == dtype]
        result = operation(torch.cat([tensor.detach().flatten() for tensor in group]))
        with torch.no_grad():
            for tensor, part in zip(group, result.split([tensor.numel() for tensor in group]), strict=True):
                tensor.copy_(part.view_as(tensor))
