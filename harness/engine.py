"""The one loop that trains every task. Read `Run.train_phase` for the order of a step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from harness import checkpoint, tracking
from harness.align import FINETUNE, borrow, checked_align, draws_of, drop_nothing, finetune, monte_carlo
from harness.backends import backend, used
from harness.binding import bind_trial
from harness.deviations import deviations
from harness.environment import environment
from harness.feed import SplitBatches, StepBatches, ahead, feed
from harness.files import write_json
from harness.optimization import divide_gradients, learning_rate, set_rate
from harness.penalty import penalized, with_penalty
from harness.rundir import RunDirectory
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.task import TASKS, Split, Task
from harness.trial import Trial


class Interrupted(Exception):
    """The trial was asked to stop, and has written a checkpoint."""


class Diverged(Exception):
    """The loss is no longer finite."""


@dataclass
class Progress:
    """Where a run stands; all of it is in every checkpoint.

    Attributes:
        step: optimizer steps done.
        selected: step of the evaluation whose weights are the run's: the best on dev so far, or the last one.
        best: the best value of the selecting metric.
        worse: evaluations since then.
        averaged: steps whose weights are averaged, where the recipe asks for it; the last one is `selected`.
        loss_steps: steps since the last train event.
        train_loss: mean loss of the last train event.
        phase: "train", or the finetuning without the regularizer behind it (`harness.align`).
    """

    step: int = 0
    selected: int | None = None
    best: float | None = None
    worse: int = 0
    averaged: list[int] = field(default_factory=list)
    loss_steps: int = 0
    train_loss: float = math.nan
    phase: Literal["train", "finetune"] = "train"


def run_trial(
    trial: Trial, directory: RunDirectory, settings: Settings, stop: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Train and evaluate a trial, from its last checkpoint where there is one.

    Args:
        trial: what to run.
        directory: where events and checkpoints go; the caller holds its lock and writes the result.
        settings: places, device, threads.
        stop: asked after every step; when it says yes, a checkpoint is written and `Interrupted` raised.

    Returns:
        the content of ``result.json``.

    Raises:
        Interrupted: see `stop`.
        Diverged: the loss became infinite or NaN.
        InputError: data, model, regularizer or recipe do not fit together.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    with backend(settings.backend):
        task = TASKS.get(trial.task)(trial, settings)
        task.setup()
        run = Run(task, directory, settings, stop)
        try:
            run.resume()
            run.train()
            return run.result()
        finally:
            run.tracking.close()


class Run:
    """One trial in the making."""

    def __init__(self, task: Task, directory: RunDirectory, settings: Settings, stop: Callable[[], bool]) -> None:
        recipe, trial = task.recipe, task.trial
        # accelerate keeps its state in the class: a worker that runs one trial after the other starts afresh.
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        # Where there is no GPU it must be said: of several processes, each would train for itself.
        self.accelerator = Accelerator(
            mixed_precision=recipe.amp, cpu=not settings.uses_cuda(), **tracking.options(settings.trackers, directory)
        )
        self.tracking = tracking.Tracking(self.accelerator, trial, directory, self.say)
        self.task, self.recipe, self.directory, self.settings, self.stop = (task, recipe, directory, settings, stop)
        self.seed = trial.seed
        self.checkpoints = directory.path / "checkpoint"

        seed_all(derive(self.seed, "model"))
        model = task.build_model()
        report = bind_trial(model, trial)
        self.sites = str(report).splitlines()
        self.plain: nn.Module = model.to(self.accelerator.device)
        self.penalized = penalized(self.plain)
        if settings.compile:
            self.plain.compile()
        self.model: nn.Module = self.accelerator.prepare(self.plain)
        self.optimizer = task.build_optimizer(self.plain)
        if self.accelerator.scaler is not None:  # without one, accelerate's only looks for libraries at every step
            self.optimizer = self.accelerator.prepare(self.optimizer)
        self.average = (
            AveragedModel(self.plain, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema), use_buffers=True)
            if recipe.ema
            else None
        )

        self.epoch_steps = task.steps_an_epoch(recipe.batch_size)
        self.steps = recipe.steps or (recipe.epochs or 0) * self.epoch_steps
        align = checked_align(trial.align, trial.regularizer)
        more = recipe.finetune_epochs * self.epoch_steps if align == FINETUNE else 0
        self.ends = {"train": self.steps, "finetune": self.steps + more}
        self.draws = draws_of(align)
        self.evaluate_every = recipe.evaluate_every or self.epoch_steps
        self.log_every = max(1, min(self.evaluate_every, self.steps // 100))
        self.fresh_scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None
        self.progress = Progress()
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        self.saved_weights: list[tuple[int | None, list[int]]] = []
        self.saved_at = time.monotonic()

    def train(self) -> None:
        """Every step from where the run stands to its end, in one phase or two."""
        self.train_phase()
        if self.progress.phase == "train" and self.ends["finetune"] > self.steps:
            self.accelerator.wait_for_everyone()  # the weights were written by one process, and are read by all
            finetune(self, checkpoint.load_weights(self.checkpoints, self.selected()), self.directory.id)
            self.train_phase()

    def train_phase(self) -> None:
        """Every step from where the run stands to the end of its phase."""
        progress, end = self.progress, self.ends[self.progress.phase]
        batches = feed(StepBatches(self.task, self.seed), progress.step, end, self.settings, self.accelerator)
        self.model.train()
        while progress.step < end and not self.patience_is_over():
            batch = next(batches)
            rate = self.rate()
            set_rate(self.optimizer, rate)
            self.loss_sum += self.step(batch)
            progress.step += 1
            progress.loss_steps += 1
            if progress.step % self.log_every == 0 or progress.step == end:
                self.log(rate)
            if progress.step % self.evaluate_every == 0 or progress.step == end:
                self.select()
                self.model.train()
            if self.agreed(self.stop()):
                self.save()
                raise Interrupted(f"stopped at step {progress.step} of {self.last}")
            if self.agreed(time.monotonic() - self.saved_at > self.settings.checkpoint_seconds):
                self.save()
        self.save()

    def rate(self) -> float:
        """The learning rate of the next step."""
        if self.progress.phase == "finetune":
            return self.recipe.finetune_lr
        return learning_rate(self.recipe, self.progress.step, self.steps)

    def step(self, batch: list[Any]) -> Tensor:
        """One optimizer step over the micro-batches of a batch; returns their mean loss, still on the device.

        The mean is over the terms of all of them (`Task.weight`), however they lie in micro-batches and processes.
        """
        total = torch.zeros((), device=self.accelerator.device)
        weights = [self.task.weight(part) for part in batch]
        # Gradients are averaged over the processes.
        whole = self.summed(sum(weights)) / self.accelerator.num_processes
        early, late = (1.0, whole) if self.task.divides_gradients else (whole, 1.0)
        for micro, part in enumerate(batch):
            # Seeded here and not once a run: whatever the model draws depends on (seed, step, micro-batch, rank).
            rank = self.accelerator.process_index
            seed_all(derive(self.seed, "step", self.progress.step, micro, rank))
            last = micro == len(batch) - 1
            with self.accelerator.autocast():
                if last:
                    loss = self.task.loss(self.model, part)
                else:
                    with self.accelerator.no_sync(self.model):
                        loss = self.task.loss(self.model, part)
                loss = with_penalty(loss, self.penalized, self.progress.step) * weights[micro] / early
            self.accelerator.backward(loss)
            total += loss.detach()
        if late != 1.0:
            divide_gradients(self.plain, late)
        if self.recipe.clip_norm is not None:
            self.accelerator.unscale_gradients()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.plain)
        return total / late

    def log(self, rate: float) -> None:
        """Write a train event with the mean loss since the last one."""
        progress = self.progress
        progress.train_loss = self.mean_loss()
        self.loss_sum.zero_()
        progress.loss_steps = 0
        self.event("train", **self.phase(), step=progress.step, steps=self.last, loss=progress.train_loss, lr=rate)

    def mean_loss(self) -> float:
        """Mean loss since the last train event, over all processes; the one place where the host waits for it."""
        total = float(self.accelerator.reduce(self.loss_sum, "mean"))
        if not math.isfinite(total):
            raise Diverged(f"the loss became {total} at or before step {self.progress.step}")
        return total / max(1, self.progress.loss_steps)

    def select(self) -> None:
        """Evaluate on dev; keep the weights if they are the best so far by the task's first metric."""
        progress, metric = self.progress, self.task.selecting
        found = self.evaluate("dev")
        self.event("evaluate", **self.phase(), step=progress.step, split="dev", metrics=found)
        value = found[metric.name]
        if progress.best is None or (value > progress.best if metric.higher_is_better else value < progress.best):
            progress.best, progress.worse = value, 0
        else:
            progress.worse += 1
        if progress.worse == 0 or self.recipe.average_last is not None:
            self.keep_weights()
        loss = f"{progress.train_loss:.4f}"
        self.say(f"step {progress.step}/{self.last}  loss {loss}  dev {metric.name} {value:.4f}")

    def keep_weights(self) -> None:
        """Make the weights of this step, or their mean with those before them, the run's."""
        progress, weights = self.progress, self.evaluated().state_dict()
        progress.selected = progress.step
        if self.recipe.average_last is not None:
            progress.averaged = [*progress.averaged, progress.step][-self.recipe.average_last :]
        if self.accelerator.is_main_process:
            if progress.averaged:
                weights = checkpoint.averaged_weights(self.checkpoints, progress.averaged, weights)
            checkpoint.save_weights(self.checkpoints, progress.step, weights)
            checkpoint.keep_weights(self.checkpoints, *self.referenced())

    def evaluate(self, split: Split) -> dict[str, float]:
        """The task's metrics on a split, with the averaged weights where there are any."""
        model = self.evaluated()
        model.eval()
        seed_all(derive(self.seed, "evaluate", self.progress.step))  # some models draw here too
        parts = SplitBatches(self.task, split, self.settings.pieces)
        batches = ahead(parts, range(len(parts)), self.settings, self.accelerator.device)
        with torch.no_grad(), self.accelerator.autocast():
            return self.task.evaluate(model, split, batches)

    def result(self) -> dict[str, Any]:
        """Score the selected weights on test: the content of ``result.json``."""
        progress, selected = self.progress, self.selected()
        self.accelerator.wait_for_everyone()  # the weights were written by one process, and are read by all
        self.evaluated().load_state_dict(checkpoint.load_weights(self.checkpoints, selected))
        with monte_carlo(self.evaluated(), self.draws):
            found = {split: self.evaluate(split) for split in ("dev", "test")}
            found["test"] |= self.summary()
        metrics = {f"{split}/{name}": value for split, values in found.items() for name, value in values.items()}
        metrics["train/loss"] = progress.train_loss
        self.event("end", step=progress.step, metrics=metrics)
        notes = list(self.task.notes)
        return {"format": 1, "metrics": metrics, "notes": notes, "selected_step": selected, "steps": progress.step}

    def summary(self) -> dict[str, float]:
        """What the task tells of the selected weights beside the metrics of the splits."""
        seed_all(derive(self.seed, "summary", self.progress.step))
        with torch.no_grad(), self.accelerator.autocast():
            return self.task.summary(self.evaluated())

    def selected(self) -> int:
        """The step whose weights are the best on dev; raises Diverged where there are none."""
        if self.progress.selected is None:
            raise Diverged("no evaluation gave a number")
        return self.progress.selected

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, or start: with what a trial that differs in `align` has trained."""
        state, problems = checkpoint.load_newest(self.checkpoints)
        for problem in problems:
            self.say(f"checkpoint {problem}")
            self.event("damaged", message=problem)
        if state is None:
            for note in self.task.notes:
                self.say(f"note: {note}")
            self.event("resume", step=0)
            self.event("start", steps=self.last, parameters=sum(p.numel() for p in self.plain.parameters()))
            borrow(self)
        else:
            self.plain.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            if self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            self.progress = Progress(**state["progress"])
            if self.progress.phase == "finetune":
                drop_nothing(self.plain)
            self.loss_sum.copy_(state["loss_sum"])
            self.saved_weights = state["saved_weights"]
            self.event("resume", step=self.progress.step)
            self.say(f"resumed at step {self.progress.step} of {self.last}")
        self.describe()

    def describe(self) -> None:
        """Write down what the trial runs on; what has computed attention is known when some of it is computed."""
        if self.accelerator.is_main_process:
            known = {"notes": self.task.notes, "deviations": deviations(type(self.task), self.task.trial)}
            kernels = {"backend": self.settings.backend, "backends": used(), "compile": self.settings.compile}
            found = {**environment(self.accelerator.device), **kernels, "sites": self.sites, **known}
            write_json(self.directory.path / "environment.json", found)

    def save(self) -> None:
        """Write a checkpoint of everything that the next step depends on."""
        progress = self.progress
        self.describe()
        self.directory.check()
        self.mean_loss()  # a diverged run is never saved over a sound checkpoint
        self.saved_weights = [*self.saved_weights, (progress.selected, progress.averaged)][-checkpoint.KEEP :]
        if self.accelerator.is_main_process:
            state = {
                "step": progress.step,
                "selected": progress.selected,
                "saved_weights": self.saved_weights,
                "loss_sum": self.loss_sum,
                "progress": asdict(progress),
                "model": self.plain.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "average": self.average.state_dict() if self.average is not None else None,
                "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None,
            }
            checkpoint.save(self.checkpoints, state)
            checkpoint.keep_weights(self.checkpoints, *self.referenced())
        self.saved_at = time.monotonic()

    def referenced(self) -> tuple[set[int], set[int]]:
        """Steps whose weights this run, or one of its kept checkpoints, may still need: selected, parts of averages."""
        kept = [(self.progress.selected, self.progress.averaged), *self.saved_weights]
        return {step for step, _ in kept if step is not None}, {step for _, steps in kept for step in steps}

    def evaluated(self) -> nn.Module:
        """The model that is evaluated."""
        return self.average.module if self.average is not None else self.plain

    @property
    def last(self) -> int:
        """The last step of the last phase."""
        return self.ends["finetune"]

    def phase(self) -> dict[str, str]:
        """The name of the phase for events, where there are two."""
        return {"phase": self.progress.phase} if self.last > self.steps else {}

    def patience_is_over(self) -> bool:
        """Whether early stopping ends the run."""
        return self.recipe.patience is not None and self.progress.worse >= self.recipe.patience

    def agreed(self, wish: bool) -> bool:
        """Whether any process wishes it: what follows is done by all of them together, or by none."""
        return self.summed(float(wish)) > 0

    def summed(self, number: float) -> float:
        """The sum of a number over all processes."""
        if self.accelerator.num_processes == 1:
            return number
        return float(self.accelerator.reduce(torch.tensor(number, device=self.accelerator.device)))

    def say(self, line: str) -> None:
        """Print a line for the log, from one process alone."""
        if self.accelerator.is_main_process:
            print(line, flush=True)

    def event(self, event: str, **fields: Any) -> None:
        """Append to ``events.jsonl``, from one process alone."""
        if self.accelerator.is_main_process:
            self.directory.append_event(event, **fields)
            self.tracking.event(event, fields)
