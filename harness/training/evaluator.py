"""Evaluate a model on a split: batches are shared among the processes, and stop requests are seen between them."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dropbench.harness.errors import Diverged, InputError, Interrupted
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.seeding import derive, generator_states, seed_all, set_generator_states
from dropbench.harness.training.data_loading import LoadedBatches, SplitBatches
from dropbench.harness.training.processes import Processes
from dropbench.harness.training.train_state import BatchResult, EvaluationProgress, MappedBatches
from dropbench.harness.trials.metric import require_numbers
from dropbench.harness.trials.task import Split

Batches = LoadedBatches | Sequence[Any] | Iterable[Any]
SELECTION = "selection"
"""The name of the evaluation that selects weights; that of any other says what is evaluated after training."""


class Evaluator(Processes):
    """One of the processes of a run, which evaluates.

    Attributes:
        stop: returns whether the run should write a checkpoint and end.
        saved_at: time of the last checkpoint in seconds, of the monotonic clock.
        evaluations: results of batches that were evaluated so far.
    """

    stop: Callable[[], bool]
    saved_at: float
    evaluations: EvaluationProgress
    selecting: bool = False

    @abstractmethod
    def save(self) -> None:
        """Write a checkpoint of everything that the next step depends on."""

    def evaluate(self, model: nn.Module, split: Split, step: int, name: str = SELECTION) -> dict[str, float]:
        """Return the task's metrics of a model on a split, as the main process computes them.

        It resumes an evaluation of the same name and step.

        Raises:
            Diverged: the selection metric is NaN.
            InputError: it is missing, or a metric is no number.
            Interrupted: the run should stop; what was evaluated is stored.
        """
        model.eval()
        seed_all(derive(self.seed, "evaluate", step))  # some models draw here too
        parts = SplitBatches(self.task, split, self.settings.micro_batch_splits)
        batches = LoadedBatches(parts, self.settings, self.accelerator.device, self.heed_requests)
        self.begin_evaluation(step, name)
        with torch.no_grad(), self.accelerator.autocast():
            metrics = self.task.evaluate(model, split, batches)
        metric = self.task.selection_metric.name
        owner = f"{type(self.task).__name__}.evaluate"
        metrics = self.of_main(require_numbers(metrics, owner))
        if metric not in metrics:
            raise InputError(f"{owner} returned {', '.join(metrics) or 'no metric'}: expected {metric} as well")
        if math.isnan(metrics[metric]):
            raise Diverged(f"{metric} on {split} became nan at step {step}")
        if self.selecting:
            self.evaluations.clear()
        return metrics

    def begin_evaluation(self, step: int, name: str) -> None:
        """Begin an evaluation, or the one of the same name and step again; one without predictions is another one."""
        self.selecting = name == SELECTION
        self.evaluations.begin(step, name if self.task.recorder is not None else f"{name}, without predictions")

    def requests(self) -> list[float]:
        """Return whether this process was asked to stop, and whether a checkpoint is due."""
        due = time.monotonic() - self.saved_at > self.settings.checkpoint_seconds
        return [float(self.stop()), float(due)]

    def heed_requests(self) -> None:
        """Between two batches of an evaluation, store the results if the run should stop, or a checkpoint is due.

        Raises:
            Interrupted: the run should stop.
        """
        stopping, saving = self.all_reduce_sum(self.requests())
        if stopping or saving:
            self.store_evaluation(stopping=bool(stopping))

    def store_evaluation(self, *, stopping: bool) -> None:
        """Write a checkpoint of the evaluated step if it is still trained, and the results of its batches so far."""
        if self.selecting:
            self.save()
        if self.accelerator.is_main_process:
            self.directory.check()
            self.event("evaluating", step=self.evaluations.step, batches=self.evaluations.save())
        self.saved_at = time.monotonic()
        if stopping:
            raise Interrupted(f"stopped in the evaluation of step {self.evaluations.step}")

    def map_batches(self, function: Callable[[Any], Any], batches: Batches) -> Iterable[Any]:
        """Share the batches of an evaluation among the processes; see `Task.map_batches`.

        If a model draws, each process evaluates all batches, because a draw depends on those before.
        """
        start = generator_states(self.accelerator.device)
        call = self.evaluations.next_call(start)
        shared = not self.alone and not call.draws
        if not self._map(function, batches, call, start, shared=shared):
            call.results, call.generators, call.draws = [], start, True
            self._map(function, batches, call, start, shared=False)
        return self._results(call)

    def _map(
        self,
        function: Callable[[Any], Any],
        batches: Batches,
        call: MappedBatches,
        start: list[Tensor],
        *,
        shared: bool,
    ) -> bool:
        """Add the results of the batches that a call lacks. Return False if they are shared and the model draws."""
        device = self.accelerator.device
        set_generator_states(call.generators, device)
        first, stride = (self.accelerator.process_index, self.accelerator.num_processes) if shared else (0, 1)
        selected = len(call.results) + first, None, stride
        own = iter(batches[slice(*selected)]) if hasattr(batches, "__getitem__") else islice(batches, *selected)
        results: list[BatchResult] = []
        while True:
            failure = None
            try:
                done = not self._evaluate_next(function, own, results)
            except (OSError, MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as raised:  # such as a damaged file, which one process alone reads
                if self.alone:
                    raise
                failure, done = raised, True
            states = generator_states(device)
            drew = any(not torch.equal(one, other) for one, other in zip(states, start, strict=True))
            flags = [float(failure is not None), float(drew), float(not done), *self.requests()]
            failed, drawing, unfinished, stopping, saving = self.all_reduce_sum(flags)
            if failed:
                self._raise(failure)
            if shared and drawing:
                return False
            if stopping or saving or not unfinished:
                shares = gather_object([results]) if shared else [results]
                call.results += [each for turn in zip_longest(*shares) for each in turn if each is not None]
                results.clear()
                call.generators, call.draws = states, bool(drawing)
                if self.task.recorder is not None and self.task.recorder.columns:
                    call.definition = self.task.recorder.definition()
            if stopping or saving:
                self.store_evaluation(stopping=bool(stopping))
            if not unfinished:
                return True

    def _evaluate_next(self, function: Callable[[Any], Any], own: Iterator[Any], results: list[BatchResult]) -> bool:
        """Append the result of the next batch, and its rows; return False if there is none."""
        recorder = self.task.recorder or Recorder()
        before, recorder.rows = recorder.rows, []
        try:
            for batch in own:
                results.append((tree_map_only(Tensor, Tensor.cpu, function(batch)), recorder.rows))
                return True
            return False
        finally:
            recorder.rows = before

    def _results(self, call: MappedBatches) -> list[Any]:
        """Return the results of a call, and record their rows."""
        if (recorder := self.task.recorder) is not None:
            if call.definition:
                recorder.define_by(call.definition)
            for _, rows in call.results:
                recorder.rows.extend(rows)
        return [result for result, _ in call.results]

    def _raise(self, failure: Exception | None) -> None:
        """Raise the failure of this process, or else an InputError with that of another one."""
        messages = gather_object([None if failure is None else str(failure)])
        raise failure or InputError(next(message for message in messages if message is not None))
