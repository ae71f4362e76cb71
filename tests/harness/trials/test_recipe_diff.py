"""How recipes differ from the published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.recipe_diff import Change, changes, recipe_diff, summarize_changes
from dropbench.harness.trials.task import TASKS, Task
from dropbench.harness.trials.trial import Trial, TrialRequest


def make(data: str = "cifar10-synthetic", model: str = "volo-d1", **fields: Any) -> tuple[type[Task], Trial]:
    request = TrialRequest(task="image-classification", data=data, model=model, **fields)
    task = TASKS.get(request.task)
    return task, task.trial_for(request, Settings())


def test_keys_are_compared_one_by_one() -> None:
    here = {"epochs": 15, "lr": 0.001, "flip": True, "model": {"depth": 6, "drop": 0.1}, "vectors_fingerprint": "ab"}
    there = {"epochs": 310, "lr": 0.001, "flip": True, "ema": 0.9, "model": {"drop": 0.2}}
    assert changes(here, there) == [
        Change("epochs", 15, 310),
        Change("ema", None, 0.9),
        Change("model.drop", 0.1, 0.2),
        Change("model.depth", 6, None),
    ]
    assert changes(there, there) == []


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ([Change("epochs", 15, 310)], ["epochs 15 (310)"]),
        ([Change("ema", None, 0.99996)], ["ema none (0.99996)"]),
        ([Change("flip", False, True)], ["flip no (yes)"]),
        ([Change("model.depth", 6, None), Change("model.depth", 8, None)], ["model.depth 6/8"]),
        ([Change("lr", 1e-3, 5e-4), Change("lr", 1e-3, 1.6e-3)], ["lr 0.001 (0.0005/0.0016)"]),
        ([Change("epochs", None, 310), Change("lr", 1.0, 2.0), Change("steps", 25, None)],
         ["lr 1 (2)", "steps 25 (310 epochs)"]),
        ([Change("kinds", ["cross", "token"], None)], ["kinds cross+token"]),
    ],
)  # fmt: skip
def test_changes_are_summarized(changes: list[Change], summary: list[str]) -> None:
    assert summarize_changes(changes) == summary


def test_a_trial_of_mini_tells_its_keys_and_one_of_paper_its_words() -> None:
    task, mini = make()
    notes = recipe_diff(task, mini)
    assert {"epochs 15 (310)", "batch_size 32 (128)", "token_labels none (image)", "model.embed_dim 96"} <= set(notes)
    task, paper = make(preset="paper")
    words = recipe_diff(task, paper)
    assert set(words) < set(notes)
    assert any("recipe for CIFAR is not public" in sentence for sentence in words)
    task, other = make(preset="paper", overrides={"epochs": 2, "model.depth": 3, "lr": 1.6e-3})
    assert recipe_diff(task, other) == [*words, "epochs 2 (310)", "model.depth 3"]
    assert other.id != paper.id


def test_what_only_a_second_phase_reads_is_told_of_those_that_have_one() -> None:
    options: dict[str, Any] = {"regularizer": "dropkey", "params": {"ratio": 0.3}}
    assert "finetune_epochs 5 (50)" in recipe_diff(*make(align="finetune", **options))
    assert not any("finetune" in notes for notes in recipe_diff(*make(**options)))


def test_every_task_that_comes_along_knows_its_published_recipe() -> None:
    pairs = {"text-classification": ("trec", "text-transformer"), "translation": ("multi30k", "transformer-wmt-en-de")}
    for name, (data, model) in pairs.items():
        found = TASKS.get(name).resolved(TrialRequest(task=name, data=data, model=model, preset="paper"))
        assert found is not None
        assert found.recipe["batch_size"] > 0


def test_a_run_records_them(tmp_path: Path) -> None:
    options = {"steps": 1, "batch_size": 8, "model.depth": 1, "model.embed_dim": 8, "model.num_heads": 1}
    task, trial = make("digits", "vit-digits", overrides=options)
    settings = Settings(runs=tmp_path, device="cpu", threads=1)
    run_trial(RunDirectory.create(tmp_path, trial), settings)
    found = json.loads((tmp_path / trial.id / "environment.json").read_text())
    assert found["deviations"] == recipe_diff(task, trial)
    assert {"steps 1 (60 epochs)", "batch_size 8 (64)", "model.depth 1"} <= set(found["deviations"])
    assert found["notes"]
