"""Training a fairseq model by our engine against fairseq's own Trainer: the same weights, batches and updates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data.iterators import GroupedIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from adapters.libraries.fairseq_models import ARCHITECTURES, TranslationOptions
from benchmarks.measure import Measurement, compare
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training import trainer
from harness.training.data_loading import StepBatches, prefetch
from harness.trials.optimization import set_rate
from harness.trials.trial import TrialRequest
from tasks.translation.translation import Translation

UPDATES, ROUNDS, TOKENS = 5, 19, 1000
"""Updates a turn, turns behind the one that warms up (100 updates of each in all), and tokens a batch."""

LIKE_FAIRSEQ = {"order": "fairseq", "lr_schedule": "inverse-sqrt", "model.dropout": 0.0}


def translation() -> list[Measurement]:
    """The `mini` model of translation without dropout or regularizer, in float32 on the CPU."""
    real = (Path(os.environ.get("DROPBENCH_DATA", "data")) / "multi30k").is_dir()
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu")
        task = prepared("multi30k" if real else "multi30k-synthetic", settings, max_tokens=TOKENS)
        run = trainer.Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, lambda: False)
        ours, theirs = our_updates(run), fairseq_updates(fairseq_train(task, Path(folder)))
        losses: tuple[list[float], list[float]] = ([], [])

        def turn(updates: Iterator[float], kept: list[float]) -> Callable[[], None]:
            return lambda: kept.extend(next(updates) for _ in range(UPDATES))

        measured = compare(
            f"training on {task.trial.data.name}, {task.trial.model}, {TOKENS} tokens a batch",
            turn(ours, losses[0]),
            "fairseq's Trainer",
            turn(theirs, losses[1]),
            limit=1 / 0.9,
            rounds=ROUNDS,
            detail={"threads": torch.get_num_threads(), "dtype": "float32", "device": "cpu"},
        )
        apart = max(abs(a - b) for a, b in zip(*losses, strict=True))
        measured.detail.update(updates=len(losses[0]), largest_difference_of_losses=apart)
        return [measured]


def prepared(data: str, settings: Settings, regularizer: str = "none", **overrides: Any) -> Translation:
    """The task of a trial without dropout, whose weights and batches are those of fairseq-train."""
    request = TrialRequest(
        task="translation",
        data=data,
        model="transformer-wmt-en-de",
        regularizer=regularizer,
        overrides={**LIKE_FAIRSEQ, "steps": UPDATES * (ROUNDS + 1), **overrides},
    )
    task = Translation(Translation.trial_for(request, settings), settings)
    task.setup()
    return task


def our_updates(run: trainer.Trainer) -> Iterator[float]:
    """The loss of each update, in nats a token."""
    batches = StepBatches(run.task, run.seed)
    for step, batch in enumerate(prefetch(batches, range(run.steps), run.settings, run.accelerator.device)):
        run.state.step = step
        set_rate(run.optimizer, run.rate())
        yield float(run.step(batch))


def command_line(task: Translation, folder: Path, *more: str) -> list[str]:
    """The arguments of fairseq-train that stand for a task's recipe, whose checkpoints would go to `folder`."""
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
    """fairseq's Trainer as fairseq-train makes it, with more arguments."""
    arguments = options.parse_args_and_arch(options.get_training_parser(), command_line(task, folder, *more))
    config = convert_namespace_to_omegaconf(arguments)
    torch.manual_seed(config.common.seed)
    theirs = tasks.setup_task(config.task)
    model, criterion = theirs.build_model(config.model), theirs.build_criterion(config.criterion)
    return Trainer(config, theirs, model, criterion)


def fairseq_updates(peer: Trainer) -> Iterator[float]:
    """The loss of each update, in nats a token."""
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
