"""A change of the computed function keeps trials apart; another order of sums is averaged and shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dropbench.db.queries.results import results
from dropbench.db.report.formats.legend import about
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.view import build
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import Store
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import make_request
from tests.db.queries.test_library_versions import SUITE
from tests.db.records import attempt, make_directory, make_trial
from tests.paths import DOCS

if TYPE_CHECKING:
    from tests.db.conftest import Call

TORCH = "torch 2.12"
EPYC, XEON, H100 = "AMD EPYC 7763", "Intel(R) Xeon(R) Platinum", "NVIDIA H100 80GB HBM3"
ENVIRONMENT = {"libraries": {"torch": "2.12.0"}, "compile": False, "tf32": False, "draws_on_device": False,
               "processes": 1, "codes": [[0, "a" * 12]], "device": EPYC}  # fmt: skip
ATTEMPT = {"device": EPYC, "cpus": 1, "gpu_seconds": 0.0, "micro_batch_splits": 1}
Write = Callable[..., list[Trial]]


@pytest.fixture
def write(folder: Path, store: Store) -> Write:
    """(environment, *attempts) → two seeds of a configuration, the second of which was trained otherwise."""

    def make(environment: dict[str, Any], *attempts: dict[str, Any]) -> list[Trial]:
        trials = [make_trial(seed) for seed in range(2)]
        own: list[tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = [({}, ({},)), (environment, attempts or ({},))]
        for trial, (changed, records) in zip(trials, own, strict=True):
            files = [attempt("interrupted", **{**ATTEMPT, **record}) for record in records]
            metrics = {"test/accuracy": 80.0 + trial.seed}
            directory = make_directory(folder / "runs", trial, attempts=files, metrics=metrics, suites=["mine"])
            directory.write("environment.json", {**ENVIRONMENT, **changed})
        rebuild(store, folder / "runs")
        return trials

    return make


@pytest.mark.parametrize(
    ("environment", "attempts", "text"),
    [
        ({"compile": True}, [], "torch 2.12 compiled"),
        ({"tf32": True}, [], "torch 2.12 tf32"),
        ({"device": H100, "draws_on_device": True}, [], f"torch 2.12 draws of {H100}"),
        ({"processes": 2}, [], "torch 2.12 2-processes"),
        ({}, [{"micro_batch_splits": 2}, {}], "torch 2.12 2-splits"),
        ({"float32_for_fp16": True}, [], "torch 2.12 float32-for-fp16"),
        ({"compile": True, "tf32": True}, [], "torch 2.12 compiled tf32"),
        ({"codes": [[0, "a" * 12], [7, "b" * 12]]}, [], "torch 2.12 mixed-code"),
    ],
)
def test_another_function_is_not_averaged(
    write: Write, store: Store, call: Call, environment: dict[str, Any], attempts: list[dict[str, Any]], text: str
) -> None:
    write(environment, *attempts)
    assert [(row["libraries"], row["mean"]) for row in results(store)] == [(TORCH, 80.0), (text, 81.0)]
    assert [row["mean"] for row in results(store, [f"libraries={text}"])] == [81.0]
    assert call("db", "rebuild").code == 0
    assert {row["mean"] for row in json.loads(call("results", "--group-by", "task", "--json").out)} == {80.0, 81.0}


MACHINES: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    ({}, [{"device": XEON}], f"2 machines ({EPYC}, 1 thread; {XEON}, 1 thread)"),
    ({"threads": 8}, [{"cpus": 8}], f"2 machines ({EPYC}, 1 thread; {EPYC}, 8 threads)"),
    ({"device": H100}, [{"device": H100, "gpu_seconds": 3.0}], f"2 machines ({EPYC}, 1 thread; {H100})"),
    ({}, [{"device": XEON}, {}], f"2 machines ({EPYC}, 1 thread; {XEON}, 1 thread)"),  # begun on another
]


@pytest.mark.parametrize(("environment", "attempts", "text"), MACHINES)
def test_another_order_of_sums_is_averaged_and_shown(
    write: Write, store: Store, folder: Path, environment: dict[str, Any], attempts: list[dict[str, Any]], text: str
) -> None:
    trials = write(environment, *attempts)
    (row,) = results(store)
    assert (row["mean"], row["n"], row["mark"]) == (80.5, 2, "2 machines")
    (row,) = results(store, group_by=["task"])
    assert (row["mean"], row["mark"]) == (80.5, "2 machines")
    assert [row["mark"] for row in results(store, ["seed=1"])] == ["2 machines" if len(attempts) > 1 else None]
    (folder / "mine.yaml").write_text(SUITE)
    suite, options = load_suite(str(folder / "mine.yaml")), SuiteOptions(seeds=(0, 1))
    request = make_request(suite, options, [(cell, [({}, trials)]) for cell in suite.cells(options)]).request
    view = build(request, [CellTrials(cell, cell.candidates[0].trials) for cell in request.cells], store)
    line = f"trained on {text}: they add numbers in other orders, so that the last digits differ"
    assert line in about(view)


def test_trials_of_one_machine_have_no_mark(write: Write, store: Store) -> None:
    write({})
    assert [(row["n"], row["mark"]) for row in results(store)] == [(2, None)]


def test_the_rule_is_written_down() -> None:
    page = DOCS.joinpath("results.md").read_text(encoding="utf-8")
    for text in (
        "torch 2.13 compiled",
        "torch 2.13 tf32",
        "draws of NVIDIA H100",
        "2-processes",
        "2-splits",
        "mixed-code",
        "2 machines",
    ):
        assert f"`{text}`" in page or text in page
