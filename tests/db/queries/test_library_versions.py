"""Results of trials that were trained with different versions of a library are marked, by every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from db.queries.rank import rank
from db.queries.results import curves, results
from db.report.formats.layout import about
from db.report.view.view import CellTrials, build
from db.store.rebuild import rebuild
from db.store.store import Store
from harness.files import write_json
from harness.regularizers.spec import RegularizerSpec
from harness.runs.run_directory import RunDirectory
from harness.suites.cell import SuiteOptions
from harness.suites.suite import load_suite
from harness.trials.trial import Trial

if TYPE_CHECKING:
    from tests.db.conftest import Call

MIXED = "torch 2.12, torch 2.13"
SUITE = """
title: Mine
source: these tests
metric: accuracy
trial: {task: text-classification, data: trec, model: text-transformer, regularizer: none}
rows: [{label: mine}]
columns: [{label: TREC}]
presets:
  mini: {seeds: 2}
"""


@pytest.fixture
def write(
    folder: Path, make_trial: Callable[..., Trial], make_directory: Callable[..., RunDirectory], attempt: Any
) -> Callable[..., Trial]:
    """(seed, environment, **fields) → a trial with a result and the content of its ``environment.json``, if any."""

    def one(seed: int, environment: Any, **fields: Any) -> Trial:
        trial = make_trial(seed, **fields)
        files: dict[str, Any] = {"attempts": [attempt("succeeded")], "metrics": {"test/accuracy": 80.0 + seed}}
        directory = make_directory(folder / "runs", trial, **files, losses=[1.0], suites=["mine"])
        if environment is not None:
            write_json(directory.path / "environment.json", environment)
        return trial

    return one


def installed(torch: str, **others: str) -> dict[str, Any]:
    return {"libraries": {"torch": torch, "transformers": "5.1.0", "timm": "1.0.2", **others}}


def marks(store: Store, **options: Any) -> list[Any]:
    return [row["mark"] for row in results(store, **options)]


def test_versions_that_differ_are_a_mark(write: Callable[..., Trial], store: Store, folder: Path, call: Call) -> None:
    trials = [write(0, installed("2.12.0+cu130")), write(1, installed("2.13.1"))]
    for seed in (0, 1):
        write(seed, installed("2.13.0"), regularizer=RegularizerSpec(name="none"))
    rebuild(store, folder / "runs")
    assert marks(store) == [MIXED, None]
    assert marks(store, group_by=["data"]) == [MIXED]
    assert [row["mark"] for row in curves(store, ["regularizer=dropkey"], "train/loss")] == [MIXED]
    assert f"trained with different versions: {MIXED}" in rank(store).notes
    (folder / "mine.yaml").write_text(SUITE)
    suite = load_suite(str(folder / "mine.yaml"))
    view = build(suite, [CellTrials(cell, trials) for cell in suite.cells(SuiteOptions())], store)
    assert f"trained with different versions: {MIXED}" in about(view)
    assert call("db", "rebuild").code == 0
    compared = json.loads(call("compare", "seed=0", "seed=1", "--json").out)
    assert [row["mark"] for row in compared] == [MIXED, None]
    assert call("db", "export", "out").code == 0
    assert call("db", "import", "out").code == 0
    assert marks(store) == [MIXED, None]


@pytest.mark.parametrize(
    "second",
    [
        installed("2.12.9"),
        installed("2.12.0", timm="2.0.0"),
        None,
        {},
        [],
        {"libraries": 3},
        {"libraries": {"torch": []}},
    ],
    ids=str,
)
def test_other_libraries_and_unknown_versions_are_no_mark(
    write: Callable[..., Trial], store: Store, folder: Path, second: Any
) -> None:
    write(0, installed("2.12.0"))
    write(1, second)
    rebuild(store, folder / "runs")
    assert marks(store) == [None]


def test_a_minor_version_of_python_counts(write: Callable[..., Trial], store: Store, folder: Path) -> None:
    """Since Python 3.12, `sum` rounds floats less."""
    for seed, python in enumerate(("3.11.7", "3.11.9", "3.13.0")):
        write(seed, {**installed("2.12.0"), "python": python})
    rebuild(store, folder / "runs")
    assert marks(store) == ["Python 3.11, Python 3.13"]


def test_the_library_of_the_models_counts(write: Callable[..., Trial], store: Store, folder: Path) -> None:
    for seed, version in enumerate(("5.1.0", "5.2.0")):
        write(seed, installed("2.12.0", transformers=version))
    rebuild(store, folder / "runs")
    assert marks(store) == ["transformers 5.1, transformers 5.2"]
