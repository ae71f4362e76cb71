"""Train a fairseq model by the engine and by fairseq's own Trainer, with the same weights, batches and updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data.iterators import GroupedIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from benchmarks.training.engine import task_of
from dropbench.adapters.libraries.fairseq_models import ARCHITECTURES
from dropbench.adapters.libraries.options import TranslationOptions
from dropbench.harness.settings import Settings
from dropbench.harness.training import trainer
from dropbench.harness.training.data_loading import StepBatches, prefetch
from dropbench.harness.trials.optimization import set_rate
from dropbench.tasks.translation.translation import Translation

LIKE_FAIRSEQ = {"order": "fairseq", "lr_schedule": "inverse-sqrt", "model.dropout": 0.0}


def prepared(data: str, settings: Settings, regularizer: str = "none", **overrides: Any) -> Translation:
    """Return the task of a trial without dropout, whose weights and batches are those of fairseq-train."""
    task: Translation = task_of(
        settings, task="translation", data=data, model="transformer-wmt-en-de", regularizer=regularizer,
        overrides={**LIKE_FAIRSEQ, **overrides},
    )  # fmt: skip
    return task


def our_updates(run: trainer.Trainer) -> Iterator[float]:
    """Train by the engine, and yield the loss of each update in nats per token."""
    batches = StepBatches(run.task, run.seed)
    for step, batch in enumerate(prefetch(batches, range(run.steps), run.settings, run.accelerator.device)):
        run.state.step = step
        set_rate(run.optimizer, run.rate())
        yield float(run.step(batch))


def command_line(task: Translation, folder: Path, *more: str) -> list[str]:
    """Return the arguments of fairseq-train for a task's recipe, with `folder` for checkpoints."""
    recipe, pairs = task.recipe, task.prepared.pairs
    model = TranslationOptions(**recipe.model).arguments()
    names = {name.replace("_", "-"): value for name, value in model.items() if value is not False}
    return [
        str(pairs.folder),
        *("--source-lang", pairs.source, "--target-lang", pairs.target, "--arch", ARCHITECTURES[task.trial.model]),
        *(f"--{name}" if value is True else f"--{name}={value}" for name, value in names.items()),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(recipe.label_smoothing)),
        *("--optimizer", "adam", "--adam-betas", f"({recipe.beta1}, {recipe.beta2})", "--lr", str(recipe.lr)),
        *("--lr-scheduler", "inverse_sqrt", "--warmup-updates", f"{recipe.warmup:.0f}"),
        *("--warmup-init-lr", str(recipe.warmup_lr), "--update-freq", str(recipe.accumulate)),
        *("--max-tokens", str(recipe.max_tokens), "--batch-size", str(recipe.batch_size)),
        *("--max-update", str(recipe.steps), "--seed", str(task.trial.seed), "--num-workers", "0", "--cpu"),
        *("--no-save", "--save-dir", str(folder), "--disable-validation", "--log-format", "none"),
        *more,
    ]


def fairseq_train(task: Translation, folder: Path, *more: str) -> Trainer:
    """Return fairseq's Trainer as fairseq-train creates it, with more arguments."""
    arguments = options.parse_args_and_arch(options.get_training_parser(), command_line(task, folder, *more))
    config = convert_namespace_to_omegaconf(arguments)
    torch.manual_seed(config.common.seed)
    theirs = tasks.setup_task(config.task)
    model, criterion = theirs.build_model(config.model), theirs.build_criterion(config.criterion)
    return Trainer(config, theirs, model, criterion)


def fairseq_updates(peer: Trainer) -> Iterator[float]:
    """Train by fairseq's Trainer, and yield the loss of each update in nats per token."""
    seen: list[tuple[float, float]] = []
    peer.criterion.register_forward_hook(lambda *call: seen.append((float(call[-1][0]), float(call[-1][1]))))
    epochs = peer.get_train_iterator(1)
    while True:
        batches = GroupedIterator(epochs.next_epoch_itr(), peer.cfg.optimization.update_freq[0])
        peer.begin_epoch(epochs.epoch)
        for samples in batches:
            peer.train_step(samples)
            yield sum(loss for loss, _ in seen) / sum(tokens for _, tokens in seen)
            seen.clear()
        epochs = peer.get_train_iterator(epochs.next_epoch_idx)
