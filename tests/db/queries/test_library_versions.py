"""No command averages results of trials that were trained with different versions of a library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dropbench.db.queries.marks import differing_versions
from dropbench.db.queries.results import results
from dropbench.db.report.formats.legend import about, incomplete
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.view import build
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.rows import Row
from dropbench.db.store.store import Store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import make_request
from tests.db.records import attempt, make_directory, make_trial

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
def write(folder: Path) -> Callable[..., Trial]:
    """(seed, environment, **fields) → a trial with a result and the content of its ``environment.json``, if any."""

    def one(seed: int, environment: Any, **fields: Any) -> Trial:
        trial = make_trial(seed, **fields)
        files: dict[str, Any] = {"attempts": [attempt("succeeded")], "metrics": {"test/accuracy": 80.0 + seed}}
        directory = make_directory(folder / "runs", trial, **files, losses=[1.0], suites=["mine"])
        if environment is not None:
            directory.write("environment.json", environment)
        return trial

    return one


def installed(torch: str, **others: str) -> dict[str, Any]:
    return {"libraries": {"torch": torch, "transformers": "5.1.0", "timm": "1.0.2", **others}}


def means(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(row.get("libraries"), row["mean"], row["n"]) for row in rows]


OLD, NEW = "torch 2.12, transformers 5.1", "torch 2.13, transformers 5.1"


@pytest.fixture
def mixed(write: Callable[..., Trial], store: Store, folder: Path) -> list[Trial]:
    """Two seeds of dropkey trained with different versions, a third with the second; two of the baseline."""
    trials = [write(0, installed("2.12.0+cu130")), write(1, installed("2.13.1")), write(2, installed("2.13.0"))]
    for seed in (0, 1):
        write(seed, installed("2.13.0"), regularizer=RegularizerSpec(name="none"))
    rebuild(store, folder / "runs")
    return trials


@pytest.mark.parametrize(
    ("word", "count"),
    [("libraries=torch 2.12", 1), ("libraries!=torch 2.12", 2), ("libraries~torch*", 3), ("libraries=torch 2.1", 0)],
)
def test_libraries_are_a_key_of_filters(mixed: list[Trial], store: Store, word: str, count: int) -> None:
    assert sum(row["n"] for row in results(store, ["regularizer=dropkey", word])) == count


def test_tables_leave_out_the_rarer_version(mixed: list[Trial], store: Store, folder: Path) -> None:
    (folder / "mine.yaml").write_text(SUITE)
    suite = load_suite(str(folder / "mine.yaml"))
    options = SuiteOptions(seeds=(0, 1, 2))
    request = make_request(suite, options, [(cell, [({}, mixed)]) for cell in suite.cells(options)]).request
    view = build(request, [CellTrials(cell, cell.candidates[0].trials) for cell in request.cells], store)
    (cell,) = view.cells.values()
    assert (cell.mean, cell.n, [seed.seed for seed in cell.averaged]) == (81.5, 2, [1, 2])
    assert f"trained with different versions: {MIXED}" in about(view)
    assert incomplete(cell) == f"seed 0: left out: trained with {OLD}"


def test_comparisons_name_the_versions(mixed: list[Trial], store: Store, folder: Path, call: Call) -> None:
    assert call("db", "rebuild").code == 0
    compared = json.loads(call("compare", "regularizer=dropkey", "regularizer=none", "--json").out)
    assert [(row["libraries"], row["only"], row["change"]) for row in compared] == [
        (NEW, None, 0.0), (OLD, "old", None),
    ]  # fmt: skip
    (row, *_) = json.loads(call("compare", "seed=0 regularizer=dropkey", "seed=1 regularizer=dropkey", "--json").out)
    assert (row["old"], row["new"], row["change"]) == ({"libraries": OLD}, {"libraries": NEW}, 1.0)
    shutil.copy(folder / "dropbench.db", folder / "copy.db")
    assert call("db", "import", "copy.db").code == 0
    assert means(results(store, ["regularizer=dropkey"])) == [(OLD, 80.0, 1), (NEW, 81.5, 2)]


def test_comparisons_of_two_databases_name_the_versions(write: Callable[..., Trial], folder: Path, call: Call) -> None:
    trial = write(0, installed("2.12.0"))
    assert call("db", "rebuild").code == 0
    shutil.copy(folder / "dropbench.db", folder / "before.db")
    Runs(folder / "runs")[trial.id].write("environment.json", installed("2.13.0"))
    assert call("db", "rebuild").code == 0
    (row,) = json.loads(call("compare", "before.db", "regularizer=dropkey", "--json").out)
    assert (row["old"], row["new"], row["change"]) == ({"libraries": OLD}, {"libraries": NEW}, 0.0)


@pytest.mark.parametrize(
    "second",
    [
        installed("2.12.9"),
        installed("2.12.0", timm="2.0.0"),
        None,
        {},
        {"libraries": 3},
        {"libraries": {"torch": []}},
    ],
    ids=str,
)
def test_other_libraries_and_unknown_versions_are_not_apart(
    write: Callable[..., Trial], store: Store, folder: Path, second: Any
) -> None:
    write(0, installed("2.12.0"))
    write(1, second)
    rebuild(store, folder / "runs")
    assert means(results(store)) == [(None, 80.5, 2)]


def test_a_minor_version_of_python_counts(write: Callable[..., Trial], store: Store, folder: Path) -> None:
    """Since Python 3.12, `sum` rounds floats less."""
    for seed, python in enumerate(("3.11.7", "3.11.9", "3.13.0", "3.13.1")):
        write(seed, {**installed("2.12.0"), "python": python})
    rebuild(store, folder / "runs")
    first, second = f"Python 3.11, {OLD}", f"Python 3.13, {OLD}"
    assert means(results(store)) == [(first, 80.5, 2), (second, 82.5, 2)]
    assert differing_versions([first, second]) == "Python 3.11, Python 3.13"


def test_the_library_of_the_models_counts(write: Callable[..., Trial], store: Store, folder: Path) -> None:
    for seed, version in enumerate(("5.1.0", "5.2.0")):
        write(seed, installed("2.12.0", transformers=version))
    rebuild(store, folder / "runs")
    assert [row["libraries"] for row in results(store)] == [OLD, OLD.replace("5.1", "5.2")]
