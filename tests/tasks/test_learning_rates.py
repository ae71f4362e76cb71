"""The learning rate of every step of `paper` against that of the sources' own schedulers.

``tests/golden/learning_rates.json`` has rates that the schedulers of the named repositories computed, by suite and
model.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
import torch
from timm.scheduler.cosine_lr import CosineLRScheduler
from torch import nn
from transformers import get_scheduler

from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.optimization import learning_rate
from dropbench.harness.trials.recipe import Recipe
from dropbench.harness.trials.recipe_diff import PAPER
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import TrialRequest
from tests.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "learning_rates.json").read_text())
STEPS_PER_EPOCH = 7393  # DETR's on COCO; no share of 150 epochs of it may round to another step
TOLERANCE = {"early-late-dropout/early vit-tiny": 1e-4}
"""Relative; default: 1e-12. Of the warm-up of (Liu et al. 2023), which reaches the peak one step earlier."""


def paper_recipe(request: TrialRequest) -> Recipe:
    """Return the recipe of a request in the preset `paper`."""
    task = spec_of(request.task)
    resolved = task.resolved(request.model_copy(update={"preset": PAPER}))
    assert resolved is not None
    return task.recipe_type.model_validate(resolved.recipe)


def suite_recipe(suite: str, model: str) -> Recipe:
    """Return the recipe of a model's baseline in a suite's preset `paper`."""
    cells = load_suite(suite).cells(SuiteOptions(preset=PAPER))
    return paper_recipe(next(cell.request for cell in cells if cell.request.model == model and cell.baseline))


@pytest.mark.parametrize("case", GOLDEN)
def test_the_rates_are_those_of_the_source(case: str) -> None:
    recipe, golden = suite_recipe(*case.split()), GOLDEN[case]
    length = golden["epochs"] if "epochs" in golden else golden["steps"]
    assert length % (recipe.epochs or recipe.steps or 0) == 0
    per_unit = STEPS_PER_EPOCH if "epochs" in golden else 1
    expected = {int(unit): rate for unit, rate in golden["rates"].items()}
    for place in (0, per_unit // 2, per_unit - 1):
        rates = {unit: learning_rate(recipe, unit * per_unit + place, length * per_unit) for unit in expected}
        assert rates == pytest.approx(expected, rel=TOLERANCE.get(case, 1e-12), abs=0)


@pytest.mark.parametrize(("lr", "warmup_epochs", "epochs"), [(5e-4, 10, 300), (1.6e-3, 20, 300), (1e-3, 5, 30)])
def test_timms_cosine_equals_timms_scheduler_at_every_step(lr: float, warmup_epochs: int, epochs: int) -> None:
    optimizer: Any = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=lr)
    theirs = CosineLRScheduler(
        optimizer, epochs, lr_min=1e-5, warmup_t=warmup_epochs, warmup_lr_init=1e-6, cycle_limit=1
    )
    total, steps = epochs + 10, 3
    recipe = Recipe(
        epochs=total, lr=lr, min_lr=1e-5, warmup=warmup_epochs / total, warmup_lr=1e-6, lr_schedule="timm-cosine",
        lr_decay_steps=epochs / total,
    )  # fmt: skip
    in_steps = recipe.model_copy(update={"warmup": steps * warmup_epochs, "lr_decay_steps": steps * epochs})
    for epoch, step in itertools.product(range(total), range(steps)):
        rate = optimizer.param_groups[0]["lr"]
        assert learning_rate(recipe, epoch * steps + step, total * steps) == pytest.approx(rate, rel=1e-12)
        assert learning_rate(in_steps, epoch * steps + step, total * steps) == pytest.approx(rate, rel=1e-12)
        theirs.step_update(epoch * steps + step + 1)
        if step == steps - 1:
            theirs.step(epoch + 1)


SCHEDULES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("linear", {"warmup_lr": 0.0}, {}, {}),
    ("cosine", {"warmup_lr": 0.0}, {}, {}),
    ("cosine_with_min_lr", {"lr_schedule": "cosine", "warmup_lr": 0.0, "min_lr": 1e-5}, {}, {"min_lr": 1e-5}),
    ("cosine_with_min_lr", {}, {"min_lr": 1e-5}, {"min_lr": 1e-5}),
    ("cosine_warmup_with_min_lr", {}, {"min_lr_rate": 0.1}, {"min_lr_rate": 0.1}),
    ("cosine_with_restarts", {}, {"num_cycles": 3}, {"num_cycles": 3}),
    ("polynomial", {}, {"power": 2.0}, {"power": 2.0}),
    ("inverse_sqrt", {}, {}, {}),
    ("constant_with_warmup", {}, {}, {}),
    ("warmup_stable_decay", {}, {"num_decay_steps": 20}, {"num_decay_steps": 20}),
]


@pytest.mark.parametrize("warmup", [0, 17, 0.1])
@pytest.mark.parametrize(("name", "keys", "options", "theirs"), SCHEDULES, ids=[str(each[:2]) for each in SCHEDULES])
def test_a_schedule_is_that_of_transformers_at_every_step(
    name: str, keys: dict[str, Any], options: dict[str, Any], theirs: dict[str, Any], warmup: float
) -> None:
    steps, lr = 103, 3e-4
    recipe = Recipe(steps=steps, lr=lr, warmup=warmup, **{"lr_schedule": name, **keys}, lr_options=options or None)
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=lr)
    whole = math.ceil(warmup * steps) if warmup < 1 else int(warmup)  # as `TrainingArguments.get_warmup_steps`
    scheduler = get_scheduler(name, optimizer, whole, steps, theirs or None)
    for step in range(steps):
        rate = optimizer.param_groups[0]["lr"]
        assert learning_rate(recipe, step, steps) == pytest.approx(rate, rel=1e-12, abs=1e-20)
        optimizer.step()
        scheduler.step()


def test_a_constant_rate_is_that_of_transformers() -> None:
    recipe = Recipe(steps=10, lr=3e-4, lr_schedule="constant")
    scheduler = get_scheduler("constant", torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3e-4))
    assert {learning_rate(recipe, step, 10) for step in range(10)} == {scheduler.get_last_lr()[0]}


def test_timms_cosine_changes_per_step_in_a_recipe_without_epochs() -> None:
    recipe = Recipe(steps=310, lr=1.0, warmup=0.0323, lr_schedule="timm-cosine", lr_decay_steps=0.9677)
    by_epoch = recipe.model_copy(update={"steps": None, "epochs": 310})
    assert [learning_rate(recipe, step, 310) for step in range(310)] == [
        learning_rate(by_epoch, step, 310) for step in range(310)
    ]


@pytest.mark.parametrize("depth", [14, 19, 24])
def test_a_performer_in_the_t2t_module_changes_no_hyper_parameter(depth: int) -> None:
    request = TrialRequest(task="image-classification", data="imagenet", model=f"t2t-vit-{depth}")
    performer = request.model_copy(update={"model": f"t2t-vit-{depth}-performer"})
    assert paper_recipe(performer) == paper_recipe(request)
