"""Run a trial: train, finetune if its alignment says so, and evaluate. One engine trains every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.attention.backends import backend, check_backend
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.finetune import finetune, reuse_base_run
from harness.training.trainer import Trainer
from harness.trials.task import TASKS


def run_trial(directory: RunDirectory, settings: Settings, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Train and evaluate the trial of a run directory; return the content of ``result.json``.

    Training continues from the last checkpoint if there is one.

    Args:
        directory: has the trial and gets its events and checkpoints; the caller holds its lock and writes the result.
        settings: paths, device, threads.
        stop: called after every step; if it returns True, a checkpoint is written and `Interrupted` raised.

    Raises:
        Interrupted: see `stop`.
        Diverged: the loss became infinite or NaN.
        InputError: data, model, regularizer or recipe do not fit together, or the device or backend is missing.
    """
    check_backend(settings.backend, cuda=settings.uses_cuda())
    if settings.threads:
        torch.set_num_threads(settings.threads)
    with backend(settings.backend):
        trial = directory.trial()
        task = TASKS.get(trial.task)(trial, settings)
        task.setup()
        trainer = Trainer(task, directory, settings, stop)
        try:
            if not trainer.resume():
                reuse_base_run(trainer)
            trainer.describe()
            trainer.train_phase()
            if trainer.has_finetuning and trainer.state.phase == "train":
                trainer.accelerator.wait_for_everyone()  # one process has written the weights that all of them read
                finetune(trainer, trainer.weights.load(trainer.state), directory.id)
                trainer.train_phase()
            return trainer.result()
        finally:
            trainer.tracking.close()
