"""Test the floors of trials: one per kind of data, cached by the data's fingerprint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.cli.report_commands import named_floors
from dropbench.tasks.data.read import read_any
from dropbench.tasks.floors import floors as module
from dropbench.tasks.floors.floor import Floor
from dropbench.tasks.floors.floors import floors, read_by_floors
from tests.tasks.making import trial_of

MODELS = {
    "trec-synthetic": ("text-classification", "text-transformer"),
    "conll2000-synthetic": ("sequence-labelling", "text-transformer"),
    "digits": ("image-classification", "vit-digits"),
    "snli-synthetic": ("textual-entailment", "text-transformer"),
    "swag-synthetic": ("multiple-choice", "text-transformer"),
    "squad-synthetic": ("question-answering", "text-transformer"),
    "cifar10-synthetic": ("image-classification", "vit-cifar"),
    "wikitext-2-synthetic": ("language-modelling", "learned-dropout-lm"),
    "multi30k-synthetic": ("translation", "transformer-wmt-en-de"),
}


def small_trial(data: str, **overrides: Any) -> Trial:
    task, model = MODELS[data]
    return trial_of(task, data, model, overrides)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("data", MODELS)
def test_floors_have_metrics_of_their_task(data: str, cache: Path) -> None:
    trial = small_trial(data)
    metrics = {metric.name for metric in spec_of(trial.task).metrics}
    computed = floors(trial, Settings())
    assert computed
    assert {floor.metric for floor in computed} <= metrics


@pytest.mark.parametrize(
    ("data", "changes"),
    [("wikitext-2-synthetic", {"vocabulary": 300, "tokenizer": "bpe"}), ("digits", {"seed_splits": 1})],
)
def test_cells_share_floors_if_nothing_differs_that_these_depend_on(
    data: str, changes: dict[str, Any], cache: Path
) -> None:
    same = read_by_floors(small_trial(data))
    assert read_by_floors(small_trial(data, lr=0.5)) == same
    assert read_by_floors(small_trial(data, **changes)) != same


def test_floors_are_computed_once_per_version_of_the_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = small_trial("trec-synthetic")
    first = floors(trial, Settings())
    monkeypatch.setattr(module, "read_any", lambda source: pytest.fail("read again"))
    assert floors(trial, Settings()) == first
    monkeypatch.setattr(module, "read_any", read_any)
    file = next((cache / "dropbench" / "floors").iterdir())
    file.write_text("{", encoding="utf-8")
    assert floors(trial, Settings()) == first


def test_vocabularies_have_their_own_floors(cache: Path) -> None:
    small, large = (floors(small_trial("wikitext-2-synthetic", vocabulary=size), Settings()) for size in (300, 400))
    assert small != large


def test_floors_of_one_name_name_the_tokenizer_if_their_values_differ(cache: Path) -> None:
    read = [read_by_floors(small_trial("wikitext-2-synthetic", vocabulary=size)) for size in (300, 400)]
    values = zip(read, (8.0, 9.0), strict=True)
    computed = [(own, [Floor("uniform", "loss", value), Floor("zero", "loss", 1.0)]) for own, value in values]
    assert named_floors("loss", computed) == {
        "uniform (vocabulary 300)": 8.0, "uniform (vocabulary 400)": 9.0, "zero": 1.0,
    }  # fmt: skip
    assert named_floors("loss", computed[:1]) == {"uniform": 8.0, "zero": 1.0}
