"""Train one trial: steps, evaluations and checkpoints. Read `Trainer.train_phase` for their order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dropbench.harness.errors import Diverged, Interrupted
from dropbench.harness.models.sites import set_progress
from dropbench.harness.regularizers.auxiliary_loss import modules_with_aux_loss, with_penalty
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import derive, drawing_for, has_drawn, seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint, tracking
from dropbench.harness.training.data_loading import MicroBatch, StepBatches, prefetch
from dropbench.harness.training.environment import run_environment
from dropbench.harness.training.evaluator import Evaluator
from dropbench.harness.training.regularization import bind_trial, check_objective, drop_nothing, regularized_loss
from dropbench.harness.training.train_state import EvaluationProgress, History, SelectedWeights, TrainState
from dropbench.harness.trials.alignment import FINETUNE, num_mc_samples, validate_alignment
from dropbench.harness.trials.optimization import clip_gradients, divide_gradients, learning_rate, set_rate
from dropbench.harness.trials.task import Task


class Trainer(Evaluator):
    """Trains one trial."""

    def __init__(self, task: Task, directory: RunDirectory, settings: Settings, stop: Callable[[], bool]) -> None:
        recipe, trial = task.recipe, task.trial
        # accelerate keeps its state in classes: a worker that runs several trials resets it for each.
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        # Without a GPU, cpu=True makes several processes train together; otherwise each would train alone.
        self.accelerator = Accelerator(
            mixed_precision=recipe.amp, cpu=not settings.uses_cuda(), **tracking.options(settings.trackers, directory)
        )
        self.tracking = tracking.Tracking(self.accelerator, trial, directory, self.log)
        self.task, self.recipe, self.directory, self.settings, self.stop = task, recipe, directory, settings, stop
        task.map_batches = self.map_batches
        self.seed = task.seed_of("masks")
        self.checkpoints = directory.path / "checkpoint"

        seed_all(derive(task.seed_of("init"), "model"))
        model = task.build_model()
        report = bind_trial(model, trial)
        self.sites, self.bound_sites, self.regularizer = str(report).splitlines(), report.bound, report.regularizer
        check_objective(self.regularizer, type(task), trial.regularizer.name)
        self.raw_model: nn.Module = model.to(self.accelerator.device)
        self.aux_loss_modules = modules_with_aux_loss(self.raw_model)
        if settings.compile:
            self.raw_model.compile()
        self.model: nn.Module = self.accelerator.prepare(self.raw_model)
        self.parameters = [*self.raw_model.parameters()]
        self.averages_gradients = not self.alone and self.regularizer.leaves_parameters_unused
        self.optimizer = task.build_optimizer(self.raw_model)
        if self.accelerator.scaler is not None:  # accelerate's wrapper is needed for its scaler alone, and slow
            self.optimizer = self.accelerator.prepare(self.optimizer)
        elif recipe.amp == "fp16":
            task.notes.append("amp=fp16: computed in float32, as always on CPUs")
        self.average: AveragedModel | None = None
        if recipe.ema:
            ema = get_ema_multi_avg_fn(recipe.ema)
            self.average = AveragedModel(self.raw_model, multi_avg_fn=ema, use_buffers=True)

        self.epoch_steps = task.steps_per_epoch(recipe.batch_size)
        self.steps = recipe.steps or (recipe.epochs or 0) * self.epoch_steps
        align = validate_alignment(trial.align, trial.regularizer)
        finetune_steps = recipe.finetune_epochs * self.epoch_steps if align == FINETUNE else 0
        self.ends = {"train": self.steps, "finetune": self.steps + finetune_steps}
        self.mc_samples = num_mc_samples(align)
        self.evaluate_every = recipe.evaluate_every or self.epoch_steps
        self.log_every = max(1, min(self.evaluate_every, self.steps // 100))
        self.initial_scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None
        self.state = TrainState()
        self.evaluations = EvaluationProgress(self.checkpoints, settings.micro_batch_splits)
        self.weights = SelectedWeights(self.checkpoints, recipe.average_last, writes=self.accelerator.is_main_process)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        self.saved_at, self.history = time.monotonic(), History()

    def train_phase(self) -> None:
        """Train from the current step to the end of the phase."""
        state, end = self.state, self.ends[self.state.phase]
        ranks = self.accelerator.process_index, self.accelerator.num_processes
        parts = StepBatches(self.task, self.task.seed_of("order"), *ranks, self.settings.micro_batch_splits)
        batches = prefetch(parts, range(state.step, end), self.settings, self.accelerator.device)
        self.model.train()
        while True:
            at_evaluation = state.step % self.evaluate_every == 0 or state.step == end
            if at_evaluation and state.step > state.evaluated:
                self.evaluate_and_select()
                self.model.train()
            if state.step == end or state.worse >= (self.recipe.patience or math.inf):
                break
            batch = next(batches)
            set_rate(self.optimizer, rate := self.rate())
            self.loss_sum += self.step(batch)
            state.step += 1
            state.loss_steps += 1
            if state.step % self.log_every == 0 or state.step == end:
                self.log_train(rate)
        self.save()

    def rate(self) -> float:
        """Return the learning rate of the next step."""
        is_finetuning = self.state.phase == "finetune"
        return self.recipe.finetune_lr if is_finetuning else learning_rate(self.recipe, self.state.step, self.steps)

    def step(self, batch: list[MicroBatch]) -> Tensor:
        """Do one optimizer step over the micro-batches of a batch; return their mean loss, on the device.

        The mean is over the loss terms of all micro-batches and processes (`Task.num_loss_terms`).

        Raises:
            Interrupted: the run should stop; the step is not done.
        """
        total = torch.zeros((), device=self.accelerator.device)
        if self.state.phase == "train" and self.regularizer.changes_over_steps:
            set_progress(self.raw_model, self.progress)
        shares, step_terms, (stopping, saving) = self.shares(batch, self.requests())
        if stopping or saving:
            self.save()
        if stopping:
            raise Interrupted(f"stopped at step {self.state.step} of {self.last_step}")
        all_terms = step_terms / self.accelerator.num_processes  # gradients are averaged over the processes
        divide_loss, divide_grads = (1.0, all_terms) if self.task.divides_gradients else (all_terms, 1.0)
        for position, (part, (terms, share)) in enumerate(zip(batch, shares, strict=True)):
            synchronizes = position == len(batch) - 1 and not self.averages_gradients
            # Seeded here and not once per run: all that a model draws depends on (seed, step, micro-batch) alone.
            with (
                drawing_for(self.seed, "step", self.state.step, part.number, part.part),
                self.micro_batch(derive(self.seed, "shared", self.state.step, position), synchronizes=synchronizes),
            ):
                self.task.share = share
                loss = with_penalty(self.loss(part.batch), self.aux_loss_modules, self.state.step) * terms / divide_loss
            self.accelerator.backward(loss)
            total += loss.detach()
            self.history.draws_on_device |= has_drawn(self.accelerator.device)
        self.task.share = None
        if self.averages_gradients:
            self.average_gradients(self.raw_model)
        if divide_grads != 1.0:
            divide_gradients(self.raw_model, divide_grads)
        if self.recipe.clip_norm:
            self.accelerator.unscale_gradients()
            clip_gradients(self.parameters, self.recipe.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.raw_model)
        return total / divide_grads

    def loss(self, batch: Any) -> Tensor:
        """Return the loss of a micro-batch without penalties."""
        if self.state.phase == "finetune":
            return self.task.loss(self.model, batch)
        when = self.progress, self.state.step // self.epoch_steps
        return regularized_loss(self.regularizer, self.task, self.model, batch, self.bound_sites, *when)

    @property
    def progress(self) -> float:
        """The share of the steps of the first phase that are done."""
        return self.state.step / self.steps

    def log_train(self, rate: float) -> None:
        """Write a train event with the mean loss since the last one."""
        state = self.state
        state.train_loss, state.loss_steps = self.mean_loss(), 0
        self.loss_sum.zero_()
        self.event("train", **self.phase_field(), step=state.step, steps=self.last_step, loss=state.train_loss, lr=rate)

    def mean_loss(self) -> float:
        """Return the mean loss since the last train event over all processes; only here the host waits for the loss."""
        self.loss_sum.copy_(self.accelerator.reduce(self.loss_sum, "mean"))  # a checkpoint has that of all processes
        total = float(self.loss_sum)
        if not math.isfinite(total):
            raise Diverged(f"the loss became {total} at or before step {self.state.step}")
        return total / max(1, self.state.loss_steps)

    def evaluate_and_select(self) -> None:
        """Evaluate on dev; select the weights if they are the best so far by the selection metric.

        Recipes that take the last weights need no evaluation before the end, and get one only if they say how often.
        """
        state, recipe, metric = self.state, self.recipe, self.task.selection_metric
        self.share_buffers(self.raw_model)
        if self.average is not None:
            self.share_buffers(self.average)
        line = f"step {state.step}/{self.last_step}  loss {state.train_loss:.4f}"
        if recipe.average_last is None or recipe.patience is not None or recipe.evaluate_every is not None:
            metrics = self.evaluate(self.eval_model(), "dev", state.step)
            self.event("evaluate", **self.phase_field(), step=state.step, split="dev", metrics=metrics)
            value = metrics[metric.name]
            if state.best is None or metric.score(value) > metric.score(state.best):
                state.best, state.worse = value, 0
            else:
                state.worse += 1
            line += f"  dev {metric.name} {value:.4f}"
        if state.worse == 0 or recipe.average_last is not None:
            self.weights.select(state, self.eval_model().state_dict())
        state.evaluated = state.step
        self.log(line)

    def resume(self) -> bool:
        """Load the newest valid checkpoint. Return False if there is none, so that the run starts from step 0.

        Raises:
            InputError: no checkpoint fits, or a process cannot read that of the main one.
        """
        main, weights = self.accelerator.is_main_process, self.eval_model().state_dict()
        resumed, problems = checkpoint.load_newest(self.checkpoints, self.load, weights) if main else (False, [])
        resumed, step = self.of_main((resumed, self.state.step))
        if resumed and not main:
            checkpoint.load_as_main(self.checkpoints, step, self.load, weights)
        if (problem := self.evaluations.load(self.state.step)) is not None:
            problems.append(problem)
        if self.differs(self.evaluations.sizes()):
            self.evaluations.clear()
        for problem in problems:
            self.log(f"checkpoint {problem}")
            self.event("damaged", message=problem)
        if not resumed:
            for note in self.task.notes:
                self.log(f"note: {note}")
            self.event("resume", step=0)
            self.event("start", steps=self.last_step, parameters=sum(p.numel() for p in self.raw_model.parameters()))
        else:
            if self.state.phase == "finetune":
                drop_nothing(self.raw_model)
            self.event("resume", step=self.state.step, evaluated=self.state.evaluated)
            self.log(f"resumed at step {self.state.step} of {self.last_step}")
        return resumed

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load the content of a checkpoint; raises an exception if it does not fit the trial."""
        self.state = TrainState(**saved["progress"])
        if not saved["step"] == self.state.step <= self.last_step or not saved["loss_sum"].isfinite():
            raise ValueError(f"step {self.state.step} of {self.last_step}, loss {saved['loss_sum']}")
        checkpoint.load_parts(saved, self.stateful_parts())
        self.loss_sum.copy_(saved["loss_sum"])
        self.history = History(**saved["history"])
        self.weights.checkpointed = dict(saved["saved_weights"])

    def save(self) -> None:
        """Write a checkpoint of everything that the next step depends on."""
        state, weights = self.state, self.weights
        self.describe()
        self.mean_loss()  # raises if the run diverged, so that no valid checkpoint is overwritten
        weights.add_checkpoint(state)
        if self.accelerator.is_main_process:
            content = {
                "step": state.step,
                "selected": state.selected,
                "saved_weights": weights.checkpointed,
                "loss_sum": self.loss_sum,
                "history": asdict(self.history),
                "progress": asdict(state),
                **{name: part.state_dict() for name, part in self.stateful_parts().items()},
            }
            checkpoint.save(self.checkpoints, content)
            weights.delete_unused(state)
            self.evaluations.delete_unused()
        self.saved_at = time.monotonic()

    def stateful_parts(self) -> dict[str, Any]:
        """Return the objects whose state dicts checkpoints hold, by their keys."""
        parts = {"model": self.raw_model, "optimizer": self.optimizer, "average": self.average}
        return {name: part for name, part in {**parts, "scaler": self.accelerator.scaler}.items() if part is not None}

    def describe(self) -> None:
        """Write ``environment.json``; the backends that were used are known after the first steps."""
        if self.accelerator.is_main_process:
            run = self.task, self.settings, self.raw_model, self.accelerator, self.history, self.sites
            self.directory.write("environment.json", run_environment(*run))

    def eval_model(self) -> nn.Module:
        """Return the model that is evaluated: the averaged one if the recipe averages weights."""
        return self.average.module if self.average is not None else self.raw_model

    @property
    def last_step(self) -> int:
        """The last step of the last phase."""
        return self.ends["finetune"]

    @property
    def has_finetuning(self) -> bool:
        """True if a second phase without the regularizer follows the first."""
        return self.last_step > self.steps

    def phase_field(self) -> dict[str, str]:
        """Return the phase as a field of events, if the trial has two phases."""
        return {"phase": self.state.phase} if self.has_finetuning else {}
