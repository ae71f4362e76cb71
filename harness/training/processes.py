"""The processes that train a trial together: sums over them, common evaluations, and their common log and events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dropbench.harness.errors import Diverged, InputError
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.schema import Row
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import derive, has_drawn, seed_all, shared_draws
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import LoadedBatches, MicroBatch, SplitBatches
from dropbench.harness.training.tracking import Tracking
from dropbench.harness.trials.metric import require_numbers
from dropbench.harness.trials.optimization import Share
from dropbench.harness.trials.task import Split, Task

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
        if self.alone:
            return [*numbers]
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.accelerator.device)
        return [*map(float, self.accelerator.reduce(sums).tolist())]

    def evaluate(self, model: nn.Module, split: Split, step: int) -> dict[str, float]:
        """Return the task's metrics of a model on a split, as the main process computes them.

        Raises:
            Diverged: the selection metric is NaN.
            InputError: it is missing, or a metric is no number.
        """
        model.eval()
        seed_all(derive(self.seed, "evaluate", step))  # some models draw here too
        parts = SplitBatches(self.task, split, self.settings.micro_batch_splits)
        batches = LoadedBatches(parts, self.settings, self.accelerator.device)
        with torch.no_grad(), self.accelerator.autocast():
            metrics = self.task.evaluate(model, split, batches)
        name = self.task.selection_metric.name
        owner = f"{type(self.task).__name__}.evaluate"
        metrics = self.of_main(require_numbers(metrics, owner))
        if name not in metrics:
            raise InputError(f"{owner} returned {', '.join(metrics) or 'no metric'}: expected {name} as well")
        if math.isnan(metrics[name]):
            raise Diverged(f"{name} on {split} became nan at step {step}")
        return metrics

    def map_batches(self, function: Callable[[Any], Any], batches: LoadedBatches | Sequence[Any]) -> Iterable[Any]:
        """Share the batches of an evaluation among the processes; see `Task.map_batches`.

        If a model draws, each process evaluates all batches, because a draw depends on those before.
        """
        if self.alone:
            return map(function, batches)
        recorder, state = self.task.recorder or Recorder(), torch.get_rng_state()
        rows_before, recorder.rows = recorder.rows, []
        own, failure = list[tuple[Any, list[Row]]](), None
        try:
            for batch in batches[self.accelerator.process_index :: self.accelerator.num_processes]:
                own.append((tree_map_only(Tensor, Tensor.cpu, function(batch)), recorder.rows))
                recorder.rows = []
        except (OSError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as raised:  # such as a damaged file, which one process alone reads
            failure = raised
        recorder.rows = rows_before
        drew = has_drawn(self.accelerator.device) or not torch.equal(state, torch.get_rng_state())
        shares = gather_object([(own, None if failure is None else str(failure), drew)])
        if failure is not None:
            raise failure
        for _, message, _ in shares:
            if message is not None:
                raise InputError(message)
        if any(drew for _, _, drew in shares):
            torch.set_rng_state(state)
            return map(function, batches)
        ordered = [each for turn in zip_longest(*(own for own, _, _ in shares)) for each in turn if each is not None]
        for _, rows in ordered:
            recorder.rows.extend(rows)
        return [result for result, _ in ordered]

    def shares(self, batch: Sequence[MicroBatch]) -> tuple[list[tuple[float, Share | None]], float]:
        """Return the loss terms and the share of each micro-batch, and the loss terms of all, over all processes.

        A micro-batch that stands in has neither.
        """
        terms, targets = list[float](), list[tuple[float, ...]]()
        for part, size, *_ in batch:
            number = self.task.num_loss_terms(part)
            terms.append(size if number is None or not size else number)
            targets.append(tuple(target if size else 0.0 for target in self.task.num_targets(part)))
        step_terms, *sums = self.all_reduce_sum([sum(terms), *map(sum, zip(*targets, strict=True))])
        shares = (Share(number / step_terms, tuple(sums)) if number else None for number in terms)
        return [*zip(terms, shares, strict=True)], step_terms

    def of_main(self, value: Value) -> Value:
        """Return the value of the main process, so that all processes decide alike."""
        values = [value]
        if not self.alone:
            broadcast_object_list(values)
        return values[0]

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
        own = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
        users = self.accelerator.reduce(own.to(self.accelerator.device)).tolist()
        used = [parameter for parameter, number in zip(parameters, users, strict=True) if number]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        _as_one([parameter.grad for parameter in used if parameter.grad is not None], self._mean)
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
