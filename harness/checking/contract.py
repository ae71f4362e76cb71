"""Try the contract of tasks, data, models and regularizers with those of a plug-in, on a few samples."""

from __future__ import annotations

import contextlib
import io
import math
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_convert

from dropbench.harness.checking.check import same_random_state
from dropbench.harness.checking.own_calls import OwnCalls
from dropbench.harness.checking.own_entries import OwnEntry, blaming
from dropbench.harness.checking.requirements import (
    MAX_SECONDS,
    SPLITS,
    change_in_batch,
    enough_logits,
    has_own,
    require_classes,
    require_disjoint_splits,
    require_equal_samples,
    require_loss,
    require_metrics,
    require_tensors,
    samples_of,
)
from dropbench.harness.checking.reread import samples_elsewhere
from dropbench.harness.errors import InputError, UnsuitableError, count_of
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.reach import first_names
from dropbench.harness.registry import PLUGIN_MODULES
from dropbench.harness.regularizers.spec import complete_spec
from dropbench.harness.runs.predictions import recorded_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches
from dropbench.harness.training.effect import require_effect, require_reach
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.metric import require_numbers
from dropbench.harness.trials.optimization import set_rate
from dropbench.harness.trials.task import TASKS, Split, Task
from dropbench.harness.trials.trial import Trial

BATCH_SIZE, EVALUATION_BATCH_SIZE = 7, 32
"""Samples of the batches; few axes of a model have length 7."""
FIXED_SEED = "split and draw with a fixed seed, such as `numpy.random.default_rng(source.split_seed)`"
SORTED = "sort what comes from a set, and use no `hash()` of a text: both differ in every process"
SMALL_BATCH = {"batch_size": BATCH_SIZE, "accumulate": 1, "amp": "no"}
ON_CPU: dict[str, Any] = {"device": "cpu", "backend": "auto", "compile": False, "trackers": (), "micro_batch_splits": 1}


def check_contract(trial: Trial, settings: Settings, entries: Sequence[OwnEntry]) -> list[str]:
    """Read the data twice, do a training step, and evaluate; return notes for the author of the entries.

    Random states stay as they were, and what the code prints is discarded.

    Raises:
        InputError: something is wrong, with the name of an entry, and its file.
        UnsuitableError: as `dropbench.harness.training.trainer.Trainer`.
    """
    small = {key: value for key, value in trial.recipe.items() if key not in ("ema", "average_last")}
    small |= {key: value for key, value in SMALL_BATCH.items() if key in small}
    small["batch_size"] = min(BATCH_SIZE, trial.recipe.get("batch_size", BATCH_SIZE))
    small_trial = trial.model_copy(update={"recipe": small})
    settings = replace(settings, **ON_CPU, num_workers=0)
    silent = io.StringIO()
    with (
        same_random_state(), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        try:
            return _Contract(small_trial, settings, entries, Path(folder)).check()
        except MemoryError:
            return ["not checked: this machine has too little memory for the model"]


class _Contract:
    """The parts of a check, in order."""

    def __init__(self, trial: Trial, settings: Settings, entries: Sequence[OwnEntry], folder: Path) -> None:
        self.trial, self.settings, self.entries, self.folder = trial, settings, entries, folder
        self.kinds = {entry.kind for entry in entries}
        self.notes: list[str] = []

    def check(self) -> list[str]:
        samples: dict[str, str] = {}
        with blaming(self.entries, "data", "task"):
            self.task = self.read(1)
        if self.kinds & {"data", "task"}:
            with blaming(self.entries, "data", "task"):
                samples = samples_of(self.task)
                require_equal_samples(samples, samples_of(self.read(2)), "a second reading of the data", FIXED_SEED)
                require_disjoint_splits(self.task)
        trainer = None
        if self.kinds & {"task", "model", "data"}:
            trainer = self.check_training()
        if self.trial.regularizer.name != "none":
            with blaming(self.entries, "regularizer", "model", "task"):
                if trainer is None or "regularizer" in self.kinds:
                    trainer = self.trainer(self.trial)
                    require_reach(trainer)
                    self.check_step(trainer)
                require_effect(trainer)
        if samples:
            with blaming(self.entries, "data", "task"):
                elsewhere = samples_elsewhere(self.trial, self.settings)
                require_equal_samples(samples, elsewhere, "another process", SORTED)
        return self.notes

    def check_training(self) -> Trainer:
        """Check task and model, without a regularizer of a plug-in; one that is not regularized gets DropKey."""
        trial = self.trial
        if "regularizer" in self.kinds:
            trial = trial.model_copy(
                update={"regularizer": complete_spec("none"), "schedule": "constant", "align": "none"}
            )
        with blaming(self.entries, "model", "task"):
            if "model" in self.kinds and trial.regularizer.name == "none":
                trainer = self.with_dropkey(trial)
            else:
                trainer = self.trainer(trial)
            with blaming(self.entries, "task", "model"):
                self.check_loss(trainer)
            self.require_sites()
            require_reach(trainer)
        with blaming(self.entries, "task", "model", "data"):
            self.check_step(trainer)
            for split in SPLITS[1:]:
                self.check_evaluation(trainer, split)
        return trainer

    def read(self, seed: int) -> Task:
        task = TASKS.get(self.trial.task)(self.trial, self.settings)
        seed_all(seed)  # what depends on it is not the same in a trial and its resumption
        task.setup()
        for split in SPLITS:
            size: Any = task.size(split)
            if not isinstance(size, int) or size < 1:
                raise InputError(f"size('{split}') is {size!r}: expected the number of its samples")
        return task

    def trainer(self, trial: Trial) -> Trainer:
        self.task.trial = trial
        return Trainer(self.task, RunDirectory.create(self.folder, trial), self.settings, lambda: False)

    def with_dropkey(self, trial: Trial) -> Trainer:
        """Return a trainer with DropKey, so that sites are found; with a note, of the trial if there are none."""
        dropkey = complete_spec("dropkey", {"ratio": 0.3})
        try:
            return self.trainer(trial.model_copy(update={"regularizer": dropkey}))
        except UnsuitableError as error:
            self.notes.append(f"nothing that regularizers of attention could act on: {error}")
            return self.trainer(trial)

    def check_loss(self, trainer: Trainer) -> None:
        """Check batch, loss, logits and gradients."""
        task, model = self.task, trainer.raw_model
        batch = StepBatches(task, 0)[0][0].batch
        require_tensors(batch)
        own_calls = OwnCalls(lambda module: module.partition(".")[0] in PLUGIN_MODULES)
        model.train()
        seed_all(0)
        with own_calls.outside(model), enough_logits(task, model):
            loss = task.loss(model, batch)
        require_loss(loss)
        self.unregularized = list(own_calls.unregularized)
        parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
        gradients: Any = torch.autograd.grad(loss, [*parameters.values()], allow_unused=True) if parameters else ()
        named: dict[str, Tensor | None] = dict(zip(parameters, gradients, strict=True))
        if wrong := [name for name, each in named.items() if each is not None and not each.isfinite().all()]:
            raise InputError(f"the gradients of {first_names(wrong)} are not finite")
        if not any(each is not None and each.any() for each in gradients):
            raise InputError("loss: no parameter of the model has a gradient: compute it from the model's output")
        if unused := [name for name, each in named.items() if each is None]:
            self.notes.append(
                f"the loss does not depend on {count_of(len(unused), 'parameter')}: {first_names(unused)}"
            )
        if type(task).gives_logits():
            self.check_logits(trainer, batch)
        terms: Any = task.num_loss_terms(batch)
        if terms is not None and not (isinstance(terms, int | float) and 0 < terms < math.inf):
            raise InputError(f"num_loss_terms returned {terms!r:.60}: expected a number above 0")

    def require_sites(self) -> None:
        """Raise InputError if the model has computed attention where no site is, unless it is registered so."""
        if self.unregularized and MODELS.entry(self.trial.model).facts.get("unreached") != "ignore":
            raise InputError(
                f"attention outside of every site, which nothing regularizes: {first_names(self.unregularized)}: call"
                " `scaled_dot_product_attention` by that name in the forward of its own module, or register the model"
                ' with `unreached="ignore"`'
            )

    def check_step(self, trainer: Trainer) -> None:
        """Do a training step, with regularizer and optimizer."""
        trainer.raw_model.train()
        set_rate(trainer.optimizer, trainer.rate())
        trainer.step(StepBatches(self.task, 0)[0])
        if wrong := [name for name, each in trainer.raw_model.named_parameters() if not each.isfinite().all()]:
            raise InputError(f"a training step makes {first_names(wrong)} infinite or NaN")

    def check_logits(self, trainer: Trainer, batch: Any) -> None:
        task, model = self.task, trainer.raw_model
        model.eval()
        with torch.no_grad():
            seed_all(0)
            alone = task.loss(model, batch)
            seed_all(0)
            pair: Any = task.loss_and_logits(model, batch)
        if type(pair) is not tuple or [isinstance(each, Tensor) for each in pair] != [True, True]:
            raise InputError(f"loss_and_logits returned {pair!r:.60}: expected a pair of tensors: loss and logits")
        loss, logits = pair
        if not torch.allclose(alone, loss, rtol=1e-4, atol=1e-6):
            raise InputError(
                f"loss is {float(alone):.6g}, but that of loss_and_logits {float(loss):.6g}: return equal ones"
            )
        if logits.ndim != 2:
            raise InputError(f"loss_and_logits: logits of shape {tuple(logits.shape)}: expected (predictions, classes)")
        require_classes(task, logits)
        if (change := change_in_batch(task, model, BATCH_SIZE)) is not None:
            self.notes.append(
                f"the logits of a sample change by {change:.2g} with the others of its batch: is the first axis the"
                " batch (`batch_first=True`), and is padding masked?"
            )

    def check_evaluation(self, trainer: Trainer, split: Split) -> None:
        """Evaluate a split, or as much of it as a few seconds allow; check metrics and predictions."""
        task, model, order = self.task, trainer.raw_model, list[int]()
        batches = list(task.evaluation_batches(split, EVALUATION_BATCH_SIZE))
        end = time.monotonic() + MAX_SECONDS

        def read() -> Iterator[Any]:
            for indices in batches:
                if order and time.monotonic() > end:
                    return
                order.extend(indices)
                yield default_convert(task.batch(split, indices))

        model.eval()
        task.recorder = recorder = Recorder()
        own_calls = OwnCalls(lambda module: False)
        seed_all(0)
        try:
            with torch.no_grad(), own_calls.outside(model):
                metrics = task.evaluate(model, split, read())
                complete = len(order) == sum(map(len, batches))
                if has_own(task, "summary") and split == "test" and isinstance(metrics, dict):
                    metrics = metrics | require_numbers(task.summary(model), "summary")
            require_metrics(task, split, metrics, complete=complete)
            if complete and split == "test":
                units = {metric.name: metric.unit for metric in task.metrics if metric.higher_is_better}
                self.notes += [
                    f'{name} is {value:.3g} %: if it is a share, multiply by 100, or declare `unit=""`'
                    for name, value in metrics.items()
                    if units.get(name) == "%" and 0 < value <= 1
                ]
            recorded_predictions(task, split, recorder, order, metrics if complete else None)
        except InputError:
            raise
        except Exception:
            if 0 < len(order) < sum(map(len, batches)):  # some need all samples
                self.notes.append(f"evaluate('{split}') was not checked: it takes more than {MAX_SECONDS:.0f} seconds")
                return
            raise
        finally:
            task.recorder = None
        if recorder.rows and task.example_id(split, order[0]) is None:
            self.notes.append(f"no predictions for {split} are kept: give examples ids by `example_id`")
