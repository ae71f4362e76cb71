"""A training step of the engine with each registered regularizer against one without.

Each has the values of its card. Schedules are at their full strength, and AD-DROP is in an epoch in which it drops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.measure import Measurement, interleave, measurement
from harness.errors import InputError
from harness.memory import keep_freed_memory
from harness.regularizers import REGULARIZERS
from harness.regularizers.cards import find_card
from harness.regularizers.spec import parse_spec
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.data_loading import StepBatches
from harness.training.trainer import Trainer
from harness.trials.task import TASKS, Task
from harness.trials.trial import TrialRequest

LEAST = 0.9
"""Steps per second over those of the baseline, per forward pass."""
LEAST_OF = {"drophead": 1.05, "layerdrop": 1.10, "patchdropout": 1.5, "r-drop": 0.5, "masksub": LEAST / 1.5}
"""The same of methods with a limit of their own. The second pass of MaskSub has half of the tokens."""
WEIGHTS = ("mixout", "sigma-reparam", "weight-orthogonality")
"""Methods whose cost does not depend on the batch. They are measured with a larger one, `Model.weights_batch`."""
RANDOM_COST = ("drophead", "layerdrop")
"""Methods whose cost depends on the draw, and is therefore measured over twice as many steps."""
GROUP = 12
"""Models that are in memory at a time, besides the baseline's."""


@dataclass(frozen=True)
class Model:
    """A trial to time.

    Attributes:
        fields: of the trial.
        overrides: of its recipe.
        rounds: measured steps.
        weights_batch: samples per step for `WEIGHTS`; None: those of the recipe.
        limited: whether the limits apply.
    """

    fields: Mapping[str, Any]
    overrides: Mapping[str, Any]
    rounds: int
    weights_batch: int | None = None
    limited: bool = False


MODELS = {
    "ViT-S at 224 px": Model(
        {"task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small"},
        {"batch_size": 8, "image_size": 224},
        rounds=5,
        weights_batch=32,  # half of the recipe's
        limited=True,
    ),
    "text Transformer": Model(
        {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer", "preset": "paper"},
        {},
        rounds=15,
    ),
}


def regularizers() -> list[Measurement]:
    """Measure all registered names on all models."""
    keep_freed_memory()  # as `run_trial`
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", num_workers=0)
        return [
            each for title, model in MODELS.items() for each in measured(title, model, list(REGULARIZERS), settings)
        ]


def measured(title: str, model: Model, names: Sequence[str], settings: Settings) -> list[Measurement]:
    """Measure names on a model; the detail of the first says which were skipped, and why."""
    skipped: dict[str, str] = {}
    found: dict[str, Measurement] = {}
    for group, setup in _groups(model, names):
        steps: dict[str, Step] = {}
        for name in group:
            try:
                steps[name] = Step(name, setup, settings)
            except InputError as error:
                skipped[name] = str(error)
        baseline = Step("none", setup, settings)
        plain, *times = interleave([step.run for step in (baseline, *steps.values())], setup.rounds)
        for (name, step), own in zip(steps.items(), times, strict=True):
            limit = round(1 / least_of(name), 3) if model.limited else None
            detail = {"threads": torch.get_num_threads(), "batch": step.trainer.recipe.batch_size, "model": title}
            each = measurement(
                f"a step of {title}, {step.spec}", own, "the same without", plain, limit=limit, detail=detail
            )
            each.detail["steps_per_second"] = round(1 / each.ratio, 3)  # over those without
            found[name] = each
    ordered = [found[name] for name in names if name in found]
    if skipped:
        ordered[0].detail["skipped"] = [skipped[name] for name in names if name in skipped]
    return ordered


def _groups(model: Model, names: Sequence[str]) -> Iterator[tuple[list[str], Model]]:
    """Yield the names that are measured together, and how."""
    others = [name for name in names if name not in (*WEIGHTS, *RANDOM_COST)]
    for start in range(0, len(others), GROUP):
        yield others[start : start + GROUP], model
    batch = {} if model.weights_batch is None else {"batch_size": model.weights_batch}
    weights, random = ([name for name in some if name in names] for some in (WEIGHTS, RANDOM_COST))
    if weights:
        yield weights, replace(model, overrides={**model.overrides, **batch})
    if random:
        yield random, replace(model, rounds=2 * model.rounds)


def least_of(name: str) -> float:
    """Return the limit of a name: steps per second over those without."""
    card = find_card(name)
    return LEAST_OF.get(name, LEAST / (1 if card is None else card.passes))


class Step:
    """Training steps of a model with a regularizer, each with draws of its own, on one batch."""

    def __init__(self, name: str, model: Model, settings: Settings) -> None:
        card = find_card(name)
        self.spec = name if card is None else card.spec(name)
        parsed = parse_spec(self.spec)
        request = TrialRequest(
            **model.fields,
            regularizer=parsed.name,
            params=parsed.params,
            **({"schedule": parsed.schedule} if parsed.schedule else {}),
            overrides=dict(model.overrides),
        )
        kind = TASKS.get(request.task)
        task: Task = kind(kind.trial_for(request, settings), settings)
        task.setup()
        self.trainer = Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, lambda: False)
        self.trainer.model.train()
        self.trainer.state.step = self.trainer.epoch_steps  # the second epoch: AD-DROP's first is plain
        self.batch = StepBatches(task, 0)[0]
        self.seeds = count()

    def run(self) -> None:
        """Do one step."""
        self.trainer.seed = next(self.seeds)
        self.trainer.step(self.batch)
