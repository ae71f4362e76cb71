"""Measure the engine, with its logs and checkpoints, against a bare loop and the Trainer of transformers.

All sides have the same model, regularizer, batches, optimizer, clipping and torch. The engine and the Trainer log every
hundredth step. The time of a checkpoint is measured separately, and added to the engine's as if one were written every
half a minute, ten times as often as by default; the others write none. The ratios have no limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import Measurement, compare, interleave
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import derive, seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches
from dropbench.harness.training.regularization import bind_trial
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.task import TASKS, Task
from dropbench.harness.trials.trial import TrialRequest

STEPS, ROUNDS = 20, 20
"""Short rounds, and many: the median of twenty ignores what else the machine does at times."""

CHECKPOINT_SECONDS = 30.0
TRIALS: dict[str, dict[str, Any]] = {
    "text Transformer": {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"},
    "ViT on digits": {"task": "image-classification", "data": "digits", "model": "vit-digits"},
}


def engine() -> list[Measurement]:
    """Measure steps of each side alternately, on all tasks."""
    return [row for title, fields in TRIALS.items() for row in against_peers(title, fields)]


def against_peers(title: str, fields: dict[str, Any]) -> Iterator[Measurement]:
    """Measure the engine against all peers on one task."""
    with temporary_settings() as settings:
        ours = Ours(build_task(fields, settings), settings)
        saving = ours.checkpoint_seconds()
        detail = {"threads": torch.get_num_threads(), "steps": STEPS, "checkpoint_ms": round(1000 * saving, 2)}

        def against(peer: str, run: Callable[[], None]) -> Measurement:
            row = compare(f"{STEPS} steps, {title}", ours.run, peer, run, limit=None, rounds=ROUNDS, detail=detail)
            return replace(row, ratio=round(row.ratio * (1 + saving / CHECKPOINT_SECONDS), 3))

        yield against("a bare loop", Bare(build_task(fields, settings), STEPS).run)
        yield against("transformers' Trainer", Trained(build_task(fields, settings), settings.runs / "trainer").run)


def build_task(fields: dict[str, Any], settings: Settings) -> Task:
    """Return a task with enough steps for all rounds, and its data."""
    steps = STEPS * (ROUNDS + 2) * 3
    overrides = {"steps": steps, "evaluate_every": steps}
    task: Task = task_of(settings, **fields, regularizer="dropkey", params={"ratio": 0.3}, overrides=overrides)
    return task


def task_of(settings: Settings, **fields: Any) -> Any:
    """Return the task of a trial with these fields, and its data."""
    request = TrialRequest(**fields)
    kind = TASKS.get(request.task)
    task = kind(kind.trial_for(request, settings), settings)
    task.setup()
    return task


@contextmanager
def temporary_settings(**changes: Any) -> Iterator[Settings]:
    """Open settings with an empty folder of runs, for training on the CPU in one process, with `changes`."""
    with TemporaryDirectory() as folder:
        yield Settings.from_environment(**{"runs": Path(folder), "device": "cpu", "num_workers": 0, **changes})


class _StepsDoneError(Exception):
    """The steps of a call are done."""


class Ours:
    """Train by the engine; each call continues the training of the last one."""

    def __init__(self, task: Task, settings: Settings, steps: int = STEPS) -> None:
        self.engine = Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, self._stop)
        self.engine.resume()
        self.left, self.steps = 0, steps

    def run(self) -> None:
        """Do some more steps."""
        self.left = self.steps
        with suppress(_StepsDoneError):
            self.engine.train_phase()
            raise AssertionError("training ended before the benchmark")

    def checkpoint_seconds(self) -> float:
        """Return the seconds that a checkpoint takes."""
        return statistics.median(*interleave([self.engine.save], rounds=10))

    def _stop(self) -> bool:
        self.left -= 1
        if not self.left:
            raise _StepsDoneError
        return False


class Bare:
    """Train by a loop written by hand."""

    def __init__(self, task: Task, steps: int) -> None:
        self.task, self.batches, self.at, self.steps = task, StepBatches(task, 0), count(), steps
        self.model, self.optimizer = prepared(task)

    def run(self) -> None:
        """Do some more steps."""
        self.model.train()
        for step in islice(self.at, self.steps):
            for part in self.batches[step]:
                loss = self.task.loss(self.model, part.batch)
                loss.backward()
            if self.task.recipe.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.task.recipe.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class Trained:
    """Train by the Trainer of transformers, in a thread that pauses between groups of steps.

    Args:
        task: defines the batches and the loss.
        folder: the Trainer's output folder.
        model: has the Trainer's default optimizer; None: the engine's model and optimizer.
        steps: steps of a group.
        own_batches: the samples of a batch are those that the Trainer draws, instead of those that the engine draws.

    Raises:
        RuntimeError: it ended before its time.
    """

    def __init__(
        self,
        task: Task,
        folder: Path,
        model: nn.Module | None = None,
        steps: int = STEPS,
        *,
        own_batches: bool = False,
    ) -> None:
        from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

        trained, optimizer = prepared(task) if model is None else (model, None)
        batches, at = StepBatches(task, 0), count()
        self.turn, self.done, self.over = Semaphore(0), Semaphore(0), False
        outer = self

        class Wrapped(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = trained

            def forward(self, batch: Any) -> dict[str, Tensor]:
                return {"loss": task.loss(self.inner, batch)}

        class Numbers(torch.utils.data.Dataset[int]):
            def __len__(self) -> int:
                return task.size("train") if own_batches else 10**6

            def __getitem__(self, index: int) -> int:
                return index

        def collate(numbers: list[int]) -> dict[str, Any]:
            return {"batch": task.batch("train", numbers) if own_batches else batches[next(at)][0].batch}

        class Turns(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step % steps == 0:
                    outer.done.release()
                    outer.turn.acquire()

        steps_in_all = steps * (ROUNDS + 2)
        arguments = TrainingArguments(
            output_dir=str(folder), max_steps=steps_in_all,
            per_device_train_batch_size=task.recipe.batch_size if own_batches else 1,
            logging_steps=max(1, steps_in_all // 100), save_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True, remove_unused_columns=False, max_grad_norm=task.recipe.clip_norm or 0.0, log_level="error",
            bf16=task.recipe.amp == "bf16",
        )  # fmt: skip
        self.trainer: Any = Trainer(
            model=Wrapped(), args=arguments, train_dataset=Numbers(), optimizers=(optimizer, None),
            data_collator=collate, callbacks=[Turns()],
        )  # fmt: skip
        self.trainer.remove_callback(PrinterCallback)
        self.thread = Thread(target=self._train, daemon=True)

    def run(self) -> None:
        """Do some more steps."""
        if self.thread.ident is None:
            self.thread.start()
        else:
            self.turn.release()
        self.done.acquire()
        if self.over:
            raise RuntimeError("transformers' Trainer ended before its time")

    def _train(self) -> None:
        try:
            self.trainer.train()
        finally:
            self.over = True
            self.done.release()


def prepared(task: Task) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return model and optimizer as the engine has them."""
    seed_all(derive(0, "model"))
    model = task.build_model()
    bind_trial(model, task.trial)
    return model, task.build_optimizer(model)
