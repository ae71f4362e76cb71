"""The gradient of one step of a small trial of each task, over parts and ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.optimization import set_rate
from dropbench.harness.trials.task import TASKS, Task
from dropbench.harness.trials.trial import Trial
from tests.tasks.making import CPU, DETR, LANGUAGE_MODEL, METRO, TEXTS, trial_of

SGD: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "clip_norm": 1e9, "steps": 1}
DETECTION = {**DETR, "batch_size": 6, "augment": False, "model.frozen": False, "model.dropout": 0.0}
TEXT = {
    "batch_size": 10, "word_dropout": 0.0, "model.dropout": 0.0, "model.layers": 1, "model.dim": 32, "model.heads": 2,
}  # fmt: skip
TRIALS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "image-classification": ("digits", "vit-digits", {"batch_size": 10, "crop_padding": 0}),
    "object-detection": ("coco-synthetic", "detr", DETECTION),
    "interaction-detection": ("hico-det-synthetic", "qpic", DETECTION),
    "mesh-recovery": (
        "humbi-synthetic", "metro",
        {**METRO, "rotate": 0.0, "rescale": 0.0, "noise": 0.0, "hidden_tokens": 0.0, "model.dropout": 0.0},
    ),
    **{task: (data, "text-transformer", TEXT) for task, data in TEXTS.items()},
    "translation": ("multi30k-synthetic", "transformer-wmt-en-de", {
        "pieces": 120, "max_tokens": 300, "accumulate": 1, "model.encoder_layers": 1,
        "model.decoder_layers": 1, "model.dim": 32, "model.feedforward": 64, "model.dropout": 0.0,
    }),
    "language-modelling": ("text-synthetic", "learned-dropout-lm", {**LANGUAGE_MODEL, "model.dropout": 0.0}),
}  # fmt: skip
"""For each task: data, model, and overrides without random draws, which parts do not share."""


def plain_trial(task: str, settings: Settings = CPU, **overrides: Any) -> Trial:
    """Return a trial of a task whose steps draw nothing and are plain SGD, on data in a folder of `settings` if any."""
    data, model, options = TRIALS[task]
    return trial_of(task, next(iter(settings.folders), data), model, {**SGD, **options, **overrides}, settings)


def task_in(directory: RunDirectory, settings: Settings) -> Task:
    """Return the task of a run directory, after `setup`."""
    trial = directory.trial()
    task = TASKS.get(trial.task)(trial, settings)
    task.setup()
    return task


def step_gradient(directory: RunDirectory, splits: int = 1, step: int = 0, settings: Settings = CPU) -> Tensor:
    """Return the gradient of a step of a `plain_trial` over all processes, in float64, as SGD applies it."""
    settings = replace(settings, runs=directory.path.parent, micro_batch_splits=splits)
    task = task_in(directory, settings)
    build_model = task.build_model
    task.build_model = lambda: build_model().double()  # type: ignore[method-assign]
    trainer = Trainer(task, directory, settings, lambda: False)
    trainer.raw_model.register_forward_pre_hook(lambda module, arguments: _double(arguments))
    before = _vector(trainer.parameters)
    trainer.model.train()
    for module in trainer.model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()  # statistics differ between parts
    ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    set_rate(trainer.optimizer, 1.0)
    trainer.step(_double(StepBatches(task, task.seed_of("order"), *ranks, splits)[step]))
    return before - _vector(trainer.parameters)


def _vector(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def _double(batch: Any) -> Any:
    return tree_map_only(Tensor, lambda leaf: leaf.double() if leaf.dtype == torch.float32 else leaf, batch)
