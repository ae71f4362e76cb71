"""The engine, all that it does beside training included, against a bare loop and the loops of other libraries.

The same model, regulariser, batches, optimizer and clipping. Ours logs every hundredth of its steps and writes a
checkpoint every half a minute, ten times as often as it does by default; the Trainer logs as often and writes none; the
bare loop does neither. timm's loop is in its repository alone: ``DROPBENCH_TIMM_TRAIN=/path/to/train.py`` names it.
fairseq's is measured in `benchmarks.translation`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import Measurement, compare
from harness.binding import bind_trial
from harness.engine import Run
from harness.feed import StepBatches
from harness.rundir import RunDirectory
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.task import TASKS, Task
from harness.trial import TrialRequest

STEPS, ROUNDS = 100, 4
WHAT: dict[str, dict[str, Any]] = {
    "text Transformer": {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"},
    "ViT on digits": {"task": "image-classification", "data": "digits", "model": "vit-digits"},
}


def engine() -> list[Measurement]:
    """Steps of each by turns; the time of ours over the peer's, so that 1 / 0.97 is 97 % of its steps a second."""
    return [measured for name, fields in WHAT.items() for measured in beside(name, fields)]


def beside(name: str, fields: dict[str, Any]) -> Iterator[Measurement]:
    """Both peers of one task."""
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", loaders=0, checkpoint_seconds=30.0)
        ours = Ours(made(fields, settings), settings)
        bare = Bare(made(fields, settings), STEPS)
        detail = {"threads": torch.get_num_threads(), "steps": STEPS}
        yield compare(
            f"{STEPS} steps, {name}", ours.run, "a bare loop", bare.run, limit=round(1 / 0.97, 3), rounds=ROUNDS,
            detail=detail,
        )  # fmt: skip
        trainer = Trained(made(fields, settings), Path(folder) / "trainer")
        yield compare(
            f"{STEPS} steps, {name}", ours.run, "transformers' Trainer", trainer.run, limit=1.0, rounds=ROUNDS,
            detail=detail,
        )  # fmt: skip

        script = os.environ.get("DROPBENCH_TIMM_TRAIN")
        if script is None:
            print("timm's train.py is left out; see DROPBENCH_TIMM_TRAIN", file=sys.stderr)
            return
        timm = Timm(made(fields, settings), Path(script))
        yield compare(
            f"{STEPS} steps, {name}", ours.run, "timm's train.py", timm.run, limit=1.0, rounds=ROUNDS, detail=detail
        )


def made(fields: dict[str, Any], settings: Settings) -> Task:
    """A task with steps enough for all rounds, and its data."""
    steps = STEPS * (ROUNDS + 1) * 3
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

    def __init__(self, task: Task, settings: Settings) -> None:
        self.engine = Run(task, RunDirectory.create(settings.runs, task.trial), settings, self._stop)
        self.engine.resume()
        self.left = 0

    def run(self) -> None:
        """Some more steps."""
        self.left = STEPS
        try:
            self.engine.train()
        except _EnoughError:
            return
        raise AssertionError("it has ended")

    def _stop(self) -> bool:
        self.left -= 1
        if not self.left:
            raise _EnoughError
        return False


class Bare:
    """What one writes by hand."""

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
    """The Trainer of transformers."""

    def __init__(self, task: Task, folder: Path) -> None:
        from transformers import PrinterCallback, Trainer, TrainingArguments

        model, optimizer = prepared(task)
        batches, steps = StepBatches(task, 0), iter(range(10**9))

        class Wrapped(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, batch: Any) -> dict[str, Tensor]:
                return {"loss": task.loss(self.inner, batch)}

        class Numbers(torch.utils.data.Dataset[int]):
            def __len__(self) -> int:
                return 10**6

            def __getitem__(self, index: int) -> int:
                return index

        arguments = TrainingArguments(
            output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=1, logging_steps=max(1, STEPS // 100),
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, remove_unused_columns=False,
            max_grad_norm=task.recipe.clip_norm or 0.0, log_level="error",
        )  # fmt: skip
        self.trainer: Any = Trainer(
            model=Wrapped(), args=arguments, train_dataset=Numbers(), optimizers=(optimizer, None),
            data_collator=lambda _: {"batch": batches[next(steps)][0]},
        )  # fmt: skip
        self.trainer.remove_callback(PrinterCallback)

    def run(self) -> None:
        """As many steps from the beginning; its setting up takes milliseconds."""
        self.trainer.train()


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
