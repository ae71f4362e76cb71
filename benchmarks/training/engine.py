"""The engine, all that it does beside training included, against a bare loop and the loops of other libraries.

The same model, regulariser, batches, optimizer and clipping. Ours logs every hundredth of its steps, as the Trainer
does; the bare loop does not. What a checkpoint takes is measured by itself and added to ours as if one were written
every half a minute, ten times as often as it is by default; the others write none. timm's loop is in its repository
alone: ``DROPBENCH_TIMM_TRAIN=/path/to/train.py`` names it. fairseq's is measured in `benchmarks.training.translation`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import Measurement, compare
from harness.runs.run_directory import RunDirectory
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.training.data_loading import StepBatches
from harness.training.monte_carlo import bind_trial
from harness.training.trainer import Trainer
from harness.trials.task import TASKS, Task
from harness.trials.trial import TrialRequest

STEPS, ROUNDS = 20, 20
"""Short rounds, and many: the median of twenty does not care for what else the machine does now and then."""

CHECKPOINT_SECONDS = 30.0
WHAT: dict[str, dict[str, Any]] = {
    "text Transformer": {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"},
    "ViT on digits": {"task": "image-classification", "data": "digits", "model": "vit-digits"},
}


def engine() -> list[Measurement]:
    """Steps of each by turns; the time of ours over the peer's, so that 1 / 0.97 is 97 % of its steps a second."""
    return [measured for name, fields in WHAT.items() for measured in beside(name, fields)]


def beside(name_of_task: str, fields: dict[str, Any]) -> Iterator[Measurement]:
    """All peers of one task."""
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", num_workers=0)
        ours = Ours(made(fields, settings), settings)
        saving = ours.saving()
        detail = {"threads": torch.get_num_threads(), "steps": STEPS, "checkpoint_ms": round(1000 * saving, 2)}

        def against(peer: str, run: Callable[[], None], limit: float) -> Measurement:
            name = f"{STEPS} steps, {name_of_task}"
            found = compare(name, ours.run, peer, run, limit=limit, rounds=ROUNDS, detail=detail)
            return replace(found, ratio=round(found.ratio * (1 + saving / CHECKPOINT_SECONDS), 3))

        yield against("a bare loop", Bare(made(fields, settings), STEPS).run, round(1 / 0.97, 3))
        yield against("transformers' Trainer", Trained(made(fields, settings), Path(folder) / "trainer").run, 1.0)
        script = os.environ.get("DROPBENCH_TIMM_TRAIN")
        if script is None:
            print("timm's train.py is left out; see DROPBENCH_TIMM_TRAIN", file=sys.stderr)
            return
        yield against("timm's train.py", Timm(made(fields, settings), Path(script)).run, 1.0)


def made(fields: dict[str, Any], settings: Settings) -> Task:
    """A task with steps enough for all rounds, and its data."""
    steps = STEPS * (ROUNDS + 2) * 3
    request = TrialRequest(
        **fields, regularizer="dropkey", params={"ratio": 0.3}, overrides={"steps": steps, "evaluate_every": steps}
    )
    kind = TASKS.get(request.task)
    task: Task = kind(kind.trial_for(request, settings), settings)
    task.setup()
    return task


class _EnoughError(Exception):
    """So many steps are done."""


class Ours:
    """The engine, which goes on where it was."""

    def __init__(self, task: Task, settings: Settings, steps: int = STEPS) -> None:
        self.engine = Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, self._stop)
        self.engine.resume()
        self.left, self.steps = 0, steps

    def run(self) -> None:
        """Some more steps."""
        self.left = self.steps
        with suppress(_EnoughError):
            self.engine.train_phase()
            raise AssertionError("it has ended")

    def saving(self) -> float:
        """Seconds that a checkpoint takes."""
        times = []
        for _ in range(10):
            start = time.perf_counter()
            self.engine.save()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def _stop(self) -> bool:
        self.left -= 1
        if not self.left:
            raise _EnoughError
        return False


class Bare:
    """A training loop written by hand."""

    def __init__(self, task: Task, steps: int) -> None:
        self.task, self.batches, self.at, self.steps = task, StepBatches(task, 0), count(), steps
        self.model, self.optimizer = prepared(task)

    def run(self) -> None:
        """Some more steps."""
        self.model.train()
        for step in islice(self.at, self.steps):
            for part in self.batches[step]:
                loss = self.task.loss(self.model, part)
                loss.backward()
            if self.task.recipe.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.task.recipe.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class Trained:
    """The Trainer of transformers, in one training of its own thread that pauses between groups of steps.

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
            return {"batch": task.batch("train", numbers) if own_batches else batches[next(at)][0]}

        class Turns(TrainerCallback):
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
        """Some more steps."""
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


class Timm:
    """`train_one_epoch` of timm's ``train.py``."""

    def __init__(self, task: Task, script: Path) -> None:
        spec = spec_from_file_location("timm_train", script)
        assert spec is not None
        assert spec.loader is not None
        self.module: Any = module_from_spec(spec)
        spec.loader.exec_module(self.module)
        clip = [] if task.recipe.clip_norm is None else ["--clip-grad", str(task.recipe.clip_norm)]
        self.arguments = self.module.parser.parse_args(["--log-interval", str(max(1, STEPS // 100)), *clip])
        self.arguments.prefetcher, self.arguments.distributed = True, False
        self.arguments.rank, self.arguments.world_size = 0, 1
        self.task, self.batches, self.at = task, StepBatches(task, 0), count()
        self.model, self.optimizer = prepared(task)

    def run(self) -> None:
        """So many steps, which are an epoch."""
        self.module.train_one_epoch(
            0, self.model, self, self.optimizer, self.arguments, task=self, device=torch.device("cpu")
        )

    # What it asks of its loader and of its task.

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        for step in islice(self.at, STEPS):
            (part,) = self.batches[step]
            yield torch.empty(self.task.recipe.batch_size), part

    def __call__(self, _: Tensor, part: Any) -> dict[str, Tensor]:
        return {"loss": self.task.loss(self.model, part)}

    def get_trainable_module(self) -> nn.Module:
        """The model."""
        return self.model

    def get_clip_parameters(self, exclude_head: bool) -> Iterator[nn.Parameter]:
        """All of them."""
        return self.model.parameters()

    def update_ema(self, step: int) -> None:
        """There is none."""


def prepared(task: Task) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Model and optimizer as the engine has them."""
    seed_all(derive(0, "model"))
    model = task.build_model()
    bind_trial(model, task.trial)
    return model, task.build_optimizer(model)
