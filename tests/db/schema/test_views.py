"""The views that other programs read, and the examples that `docs/results.md` has for them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.queries.results import curves, results
from dropbench.db.queries.usage import usage
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.db.transfer.export import query
from dropbench.db.transfer.source import open_source
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import RegularizerSpec, complete_spec
from tests.db.records import attempt, make_trial
from tests.paths import DOCS
from tests.requests import named

PAGE = (DOCS / "results.md").read_text(encoding="utf-8")

OF_TRIALS = [
    "trial_id", "config_id", "task", "data", "model", "regularizer", "ratio", "window_size", "schedule", "align",
    "preset", "params", "overrides", "seed", "state",
]  # fmt: skip
COLUMNS = {
    "v_trials": [
        *OF_TRIALS, "reason", "attempts", "gpu_hours", "cpu_hours", "waited_hours", "peak_memory_bytes", "started_at",
        "ended_at", "created_at", "updated_at", "rescale", "fingerprint", "libraries", "result_versions",
    ],
    "v_results": [*OF_TRIALS, "metric", "value", "rescale", "fingerprint", "libraries", "result_versions"],
    "v_curves": [*OF_TRIALS, "metric", "step", "value", "rescale", "fingerprint", "libraries", "result_versions"],
}  # fmt: skip
"""The columns of the views, none of which may ever be removed or renamed."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> str:
    """An empty database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgresql")())
    return f"sqlite:///{shutil.copy2(template, tmp_path / 'dropbench.db')}"


sqlite_alone = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def filled(store: Store) -> Store:
    """Three seeds of two suites, of which one diverged, and two trials that wait, one with odd parameters."""
    spent: dict[str, Any] = {"gpus": 2, "cpus": 4, "waited_seconds": 1800.0, "peak_memory_bytes": 2**40}
    attempts = [{"number": number, **attempt("succeeded", **spent)} for number in (1, 2)]
    curve: list[Any] = [("dev/accuracy", -1, 1.0), ("train/loss", 0, 2.0), ("train/loss", 5, 1.0)]
    for seed, value in enumerate((80.0, 82.5, None)):
        metrics = [("test/accuracy", -1, value), *curve]
        store.record([RunRecord(make_trial(seed), "succeeded", None, attempts, metrics)])
        store.add_requests([named("mine", make_trial(seed)), named("two", make_trial(seed))])
    odd = RegularizerSpec(name="mine", params={"ratio": "a lot", "window": True})
    waiting = [make_trial(7, regularizer=odd), make_trial(8, regularizer=RegularizerSpec(name="none"))]
    store.enqueue(waiting)
    return store


def ask(url: str, statement: str) -> list[dict[str, Any]]:
    names, rows = query(url, statement)
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_ratio_of_a_composition_is_the_largest_of_its_parts(store: Store, url: str) -> None:
    composed = complete_spec("dropkey+drophead+r-drop", {"dropkey.ratio": 0.3, "drophead.ratio": 0.1})
    without = complete_spec("r-drop+disagreement")
    odd = RegularizerSpec(name="mine+dropkey", params={"mine.ratio": "a lot", "dropkey.ratio": 0.25})
    trials = [make_trial(0, regularizer=spec) for spec in (composed, without, odd)]
    store.enqueue(trials)
    ratios = {row["trial_id"]: row["ratio"] for row in ask(url, "SELECT trial_id, ratio FROM v_trials")}
    assert [ratios[trial.id] for trial in trials] == [0.3, None, 0.25]


def test_views(filled: Store, url: str) -> None:
    for view, columns in COLUMNS.items():
        assert query(url, f"SELECT * FROM {view} LIMIT 1")[0] == columns
    trials = ask(url, "SELECT * FROM v_trials ORDER BY seed")
    assert [(row["seed"], row["ratio"], row["window_size"]) for row in trials] == [
        (0, 0.3, 1), (1, 0.3, 1), (2, 0.3, 1), (7, None, None), (8, None, None),
    ]  # fmt: skip
    assert [row["attempts"] for row in trials] == [2, 2, 2, 0, 0]
    total = usage(filled, "user")[1]
    assert sum(row["gpu_hours"] for row in trials) == pytest.approx(total.gpu_hours)
    assert sum(row["cpu_hours"] for row in trials) == pytest.approx(total.cpu_hours)
    assert sum(row["waited_hours"] for row in trials) == pytest.approx(total.waited_hours)
    assert trials[0]["peak_memory_bytes"] == total.peak_memory_bytes
    assert (trials[0]["started_at"], trials[4]["ended_at"]) == ("2026-01-02T03:04:05.000+00:00", None)
    finals = ask(url, "SELECT seed, metric, value FROM v_results WHERE metric = 'accuracy' ORDER BY seed")
    assert [row["value"] for row in finals] == [80.0, 82.5, None]
    (mean,) = ask(url, "SELECT AVG(value) AS mean, COUNT(value) AS n FROM v_results WHERE metric = 'accuracy'")
    (row,) = results(filled, ["two"], metrics=["accuracy"])
    assert (mean["mean"], mean["n"]) == (row["mean"], row["n"])
    of_steps = "SELECT step, AVG(value) AS mean FROM v_curves WHERE metric = 'train/loss' GROUP BY step ORDER BY step"
    points = ask(url, of_steps)
    assert points == [{"step": row["step"], "mean": row["mean"]} for row in curves(filled, ["two"], "loss")]
    with pytest.raises(InputError):
        query(url, "DELETE FROM v_results")


@sqlite_alone
def test_a_source_is_read_without_its_views(filled: Store, url: str) -> None:
    """The views of a file of unknown origin may contain anything."""
    with open_source(url.removeprefix("sqlite:///"), "sqlite://") as source, pytest.raises(Exception, match="unsafe"):
        source.connection.exec_driver_sql("SELECT * FROM v_results").all()


def example(package: str) -> str:
    (code,) = re.findall(rf"```python\n(import {package}\n.*?)```", PAGE, re.DOTALL)
    return str(code)


@sqlite_alone
@pytest.mark.parametrize("package", ["pandas", "duckdb"])
def test_the_examples_of_the_documents(
    filled: Store, url: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(Path(url.removeprefix("sqlite:///")).parent)
    exec(example(package), {})  # noqa: S102 - our own document
    assert "81.25" in capsys.readouterr().out


@sqlite_alone
def test_the_examples_pool_no_configurations(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rescale, value in (("inverse", 10.0), ("renormalize", 20.0)):
        spec = RegularizerSpec(name="dropkey", params={"ratio": 0.3, "rescale": rescale})
        metrics: list[Any] = [("test/accuracy", -1, value), ("dev/accuracy", -1, value + 5)]
        store.record([RunRecord(make_trial(0, regularizer=spec), "succeeded", None, [], metrics)])
        store.add_requests([named("mine", make_trial(0, regularizer=spec))])
    assert {row["rescale"] for row in ask(url, "SELECT rescale FROM v_results")} == {"inverse", "renormalize"}
    monkeypatch.chdir(Path(url.removeprefix("sqlite:///")).parent)
    exec(example("pandas"), {})  # noqa: S102 - our own document
    assert re.findall(r"(inverse|renormalize) .* (\d+\.0) +NaN +1\b", capsys.readouterr().out) in (
        [("inverse", "10.0"), ("renormalize", "20.0")], [("renormalize", "20.0"), ("inverse", "10.0")],
    )  # fmt: skip
    (statement,) = (sql for sql in re.findall(r'dropbench db sql "([^"]*)"', PAGE) if "AVG" in sql)
    assert sorted(row[-1] for row in query(url, statement)[1]) == [10.0, 15.0, 20.0, 25.0]


def test_what_the_documents_ask_in_sql(filled: Store, url: str) -> None:
    statements = re.findall(r'dropbench db sql "([^"]*)"', PAGE)
    assert any("v_results" in statement for statement in statements)
    for statement in statements:
        assert json.dumps(query(url, statement)[1])
