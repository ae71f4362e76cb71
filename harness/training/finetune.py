"""Second phases: train on without the regularizer, or start from weights of a trial that differs in `align` only."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from harness.errors import InputError
from harness.runs.run_directory import Runs
from harness.training import checkpoint
from harness.training.monte_carlo import drop_nothing
from harness.training.train_state import TrainState
from harness.training.trainer import Trainer
from harness.trials.alignment import base_trial


def reuse_base_run(trainer: Trainer) -> None:
    """Take the first phase of a new run from the base trial's run if that is finished; events name it."""
    trial = trainer.task.trial
    base = Runs(trainer.directory.path.parent)[base_trial(trial).id]
    first_phase: tuple[dict[str, Any], dict[str, Any]] | None = None
    with suppress(InputError, checkpoint.Damaged, KeyError, TypeError, ValueError):  # the run is damaged
        if trial.align != "none" and (result := base.result()) is not None:
            first_phase = result, checkpoint.load_weights(base.path / "checkpoint", int(result["selected_step"]))
    if trainer.any_rank(first_phase is None) or first_phase is None:
        return
    result, weights = first_phase
    trainer.log(f"starting from the weights that trial {base.id} selected")
    if trainer.has_finetuning:
        finetune(trainer, weights, base.id)
        return
    state = trainer.state
    state.step, state.selected = result["steps"], result["selected_step"]
    state.train_loss, trainer.ends["train"] = result["metrics"]["train/loss"], result["steps"]
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
    trainer.state = TrainState(step=trainer.steps, phase="finetune")
    drop_nothing(trainer.raw_model)
    trainer.event("phase", step=trainer.steps + 1, phase="finetune", weights_of=source)
