"""Run a trial: train, finetune if its alignment says so, and evaluate. One engine trains every task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from dropbench.harness.attention.backends import backend, check_backend
from dropbench.harness.errors import Diverged, InputError, Interrupted
from dropbench.harness.memory import keep_freed_memory
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.registry import describe
from dropbench.harness.runs.lease import SupersededError
from dropbench.harness.runs.predictions import keep_predictions
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.seeding import derive, seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint
from dropbench.harness.training.data_loading import SplitBatches
from dropbench.harness.training.effect import leaves_parameters_unused, require_effect, require_reach
from dropbench.harness.training.regularization import drop_nothing, monte_carlo
from dropbench.harness.training.train_state import History, TrainState
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.alignment import base_trial
from dropbench.harness.trials.metric import MetricName, require_numbers
from dropbench.harness.trials.plugins import plugins_of
from dropbench.harness.trials.result_versions import check_versions
from dropbench.harness.trials.task import TASKS, Split
from dropbench.harness.variables import RECIPE, without_variables

FINAL_SPLITS: tuple[Split, ...] = ("dev", "test")
"""Splits of the final evaluation; the last one is summarized."""
CANNOT_GO_ON = (OSError, MemoryError, torch.OutOfMemoryError, SupersededError, Diverged, Interrupted)
"""Errors that end an attempt whatever is done at the time: full disks or memory, another worker, the trial itself."""


def run_trial(directory: RunDirectory, settings: Settings, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Train and evaluate the trial of a run directory; return the content of ``result.json``.

    Training continues from the last checkpoint if there is one.

    Args:
        directory: has the trial and gets its events and checkpoints; the caller holds its lock and writes the result.
        settings: paths, device, threads.
        stop: called before each step and between two batches of an evaluation; if it returns True, a checkpoint is
            written and `Interrupted` raised.

    Raises:
        Interrupted: see `stop`.
        Diverged: the loss became infinite or NaN, or the selection metric NaN.
        InputError: data, model, regularizer or recipe do not fit together, the device or backend is missing, or the
            trial was requested with other result versions, or with plug-ins that have changed without a copy.
    """
    check_backend(settings.backend, cuda=settings.uses_cuda())
    keep_freed_memory()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.gpu_share < 1 and settings.uses_cuda():
        torch.cuda.set_per_process_memory_fraction(settings.gpu_share)
    trial = directory.trial()
    with backend(settings.backend), without_variables(*RECIPE), plugins_of(trial, directory.path.parent):
        check_versions(trial)
        task = TASKS.get(trial.task)(trial, settings)
        task.setup()
        trainer = Trainer(task, directory, settings, stop)
        try:
            if not trainer.resume():
                require_reach(trainer)
                require_effect(trainer)
                reuse_base_run(trainer)
            note_code(trainer)
            trainer.describe()
            if not (trainer.alone or trainer.averages_gradients) and trainer.state.step < trainer.last_step:
                trainer.averages_gradients = leaves_parameters_unused(trainer)
            trainer.train_phase()
            if trainer.has_finetuning and trainer.state.phase == "train":
                trainer.accelerator.wait_for_everyone()  # one process has written the weights that all of them read
                finetune(trainer, trainer.weights.load(trainer.state), directory.id)
                trainer.train_phase()
            return evaluate_selected(trainer)
        finally:
            trainer.tracking.close()


def evaluate_selected(trainer: Trainer) -> dict[str, Any]:
    """Evaluate the selected weights on dev and test, store predictions, and return the content of ``result.json``."""
    task, state, model = trainer.task, trainer.state, trainer.eval_model()
    trainer.accelerator.wait_for_everyone()  # one process has written the weights that all of them read
    model.load_state_dict(trainer.weights.load(state))
    splits: dict[Split, dict[str, float]] = {}
    recorders: dict[Split, Recorder] = {}
    with monte_carlo(model, trainer.mc_samples):
        for split in FINAL_SPLITS:
            task.recorder = recorders[split] = Recorder()
            measure = partial(trainer.evaluate, model, split, state.step, f"final {split}")
            splits[split] = _recorded(trainer, split, measure)
        splits["test"] |= _recorded(trainer, "test", partial(_summarize, trainer, model))
    task.recorder = None
    for split, recorder in recorders.items() if trainer.accelerator.is_main_process else ():
        parts = SplitBatches(task, split, trainer.settings.micro_batch_splits).parts
        order = [index for part in parts for index in part]
        try:
            keep_predictions(trainer.directory, task, split, recorder, order, splits[split])
        except CANNOT_GO_ON:
            raise
        except Exception as error:
            _lose_predictions(trainer, split, error)
    metrics = {str(MetricName(split, name)): value for split in splits for name, value in splits[split].items()}
    metrics["train/loss"] = state.train_loss
    trainer.event("end", step=state.step, metrics=metrics)
    selected = {"selected_by": task.selection_metric.name, "selected_step": state.selected_step()}
    return {"format": 1, "metrics": metrics, "notes": list(task.notes), **selected, "steps": state.step}


def note_code(trainer: Trainer) -> None:
    """Add the code of this process to the history, and a note for readers of the results if there is other code."""
    if (note := trainer.history.add_code(trainer.state.step)) is not None:
        trainer.task.notes.append(note)
        trainer.log(f"note: {note}")


def _summarize(trainer: Trainer, model: nn.Module) -> dict[str, float]:
    seed_all(derive(trainer.seed, "summary", trainer.state.step))
    trainer.begin_evaluation(trainer.state.step, "summary")
    with torch.no_grad(), trainer.accelerator.autocast():
        summary = require_numbers(trainer.task.summary(model), f"{type(trainer.task).__name__}.summary")
    return trainer.of_main(summary)


def _recorded(trainer: Trainer, split: Split, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return metrics, measured again without predictions if something fails that training has not met: to record."""
    task = trainer.task
    try:
        return measure()
    except CANNOT_GO_ON:
        raise
    except Exception as error:
        if task.recorder is None:
            raise
        task.recorder.rows, task.recorder = [], None
        metrics = measure()
        _lose_predictions(trainer, split, error)
        return metrics


def _lose_predictions(trainer: Trainer, split: Split, error: Exception) -> None:
    """Note that there are no predictions for a split: the metrics of a finished training are kept nevertheless."""
    note = f"no predictions for {split} are kept: {error if isinstance(error, InputError) else describe(error)}"
    trainer.task.notes.append(note)
    trainer.log(f"note: {note}")


def reuse_base_run(trainer: Trainer) -> None:
    """Take the first phase of a new run from the base trial's run if that is finished; events name it.

    The history goes on with the code of that run.
    """
    trial = trainer.task.trial
    base = Runs(trainer.directory.path.parent)[base_trial(trial).id]
    first_phase: tuple[dict[str, Any], dict[str, Any], History] | None = None
    damaged = InputError, FileNotFoundError, checkpoint.Damaged, KeyError, TypeError, ValueError
    with suppress(*damaged):
        if trial.align != "none" and (result := base.result()) is not None:
            weights = checkpoint.load_weights(base.path / "checkpoint", int(result["selected_step"]))
            computed = base.read("environment.json")
            first_phase = result, weights, History(computed["codes"], computed["draws_on_device"])
    if trainer.any_rank(first_phase is None) or first_phase is None:
        return
    result, weights, trainer.history = first_phase
    trainer.log(f"starting from the weights that trial {base.id} selected")
    if trainer.has_finetuning:
        finetune(trainer, weights, base.id)
        return
    state = trainer.state
    state.step = state.evaluated = result["steps"]
    state.selected = result["selected_step"]
    state.train_loss = result["metrics"]["train/loss"]
    state.worse = trainer.recipe.patience or 0  # it may have ended early
    if trainer.accelerator.is_main_process:
        checkpoint.save_weights(trainer.checkpoints, state.selected_step(), weights)
    trainer.event("borrowed", step=1, weights_of=base.id)


def finetune(trainer: Trainer, weights: dict[str, Any], source: str) -> None:
    """Begin the second phase from given weights, those of trial `source`, with a fresh optimizer.

    Its steps are counted from the latest possible end of the first phase, and its selection sees its own weights only:
    the course of the first phase, and the trial that ran it, make no difference.
    """
    for model in (trainer.raw_model, trainer.eval_model()):
        model.load_state_dict(weights)
    if trainer.average is not None:
        trainer.average.n_averaged.zero_()
    trainer.optimizer.state.clear()
    if trainer.accelerator.scaler is not None:
        trainer.accelerator.scaler.load_state_dict(trainer.initial_scaler)
    trainer.loss_sum.zero_()
    trainer.state = TrainState(step=trainer.steps, evaluated=trainer.steps, phase="finetune")
    drop_nothing(trainer.raw_model)
    trainer.event("phase", step=trainer.steps + 1, phase="finetune", weights_of=source)
