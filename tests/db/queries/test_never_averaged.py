"""No command averages two trials that differ in more than their seed, and none prints rows that look alike."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import pytest
from starlette.testclient import TestClient

import dropbench
from dropbench.db.report.dashboard.app import make_app
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, open_store
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.request import Request
from dropbench.harness.suites.suite import Suite, load_suite
from dropbench.harness.trials import result_versions
from dropbench.harness.trials.result_versions import ENGINE
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import DataRef, Trial, TrialRequest
from dropbench.jobs.queue.request import Candidates, make_request
from dropbench.jobs.queue.status import activity
from tests.paths import DOCS

if TYPE_CHECKING:
    from tests.db.conftest import Call

SUITE = """
title: Mine
source: these tests
metric: accuracy
trial: {task: text-classification, data: trec, model: text-transformer}
rows:
  - {label: none, baseline: true, trial: {regularizer: none}}
  - {label: dropkey, trial: {regularizer: dropkey, params: {ratio: 0.3}}}
columns: [{label: TREC}]
presets:
  mini: {seeds: 2}
"""
REQUEST = {"task": "text-classification", "data": "trec", "model": "text-transformer"}
FIRST, SECOND = "a1" * 8, "b2" * 8
OLD, NEW = "torch 2.12, transformers 5.1", "torch 2.13, transformers 5.1"
VALUES = {"none": (50.0, 60.0), "dropkey": (10.0, 20.0)}
"""The values of both trials of each regularizer; a mean of two is 55 or 15."""
MEANS = re.compile(r"(?<![\w:.-])(?:55|15)(?:\.0+)?(?![\w:-]|\.\d| (?:s|min|h)\b)")
"""Such a mean, but no part of a date, a time or a duration."""
PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "data folders": (SECOND, {"data": DataRef(name="trec", fingerprint=SECOND)}),
    "engine versions": (f"engine {ENGINE + 1}", {"result_versions": {"engine": ENGINE + 1}}),
    "versions of dropkey": ("regularizer dropkey 2", {"result_versions": {"regularizer dropkey": 2}}),
    "values of rescale": ("inverse", {"params": {"rescale": "inverse"}}),
    "models": ("bert-tiny", {"model": "bert-tiny"}),
    "libraries": ("torch 2.13", {"libraries": NEW}),
    "recipes": ("0.25", {"recipe": {"clip_norm": 0.25}}),
}
"""The differences of the second trial of each regularizer, as text, and the fields."""
ASKED = {"values of rescale", "models", "recipes"}
"""Differences that `--group-by` pools if the user asks for rows without them; the row says so."""


def trials(kind: str) -> Iterator[tuple[Trial, str, float]]:
    """Yield the trials, each with the libraries that it was trained with and its value."""
    for name, values in VALUES.items():
        for second, value in enumerate(values):
            change = dict(PAIRS[kind][1]) if second else {}
            seed = int("libraries" in change)  # they are no part of a trial
            if name == "none" and (
                change.get("params") or change.get("result_versions", {}).get("regularizer dropkey")
            ):
                continue  # `none` has neither
            libraries = change.pop("libraries", OLD)
            fields = {**REQUEST, "regularizer": name, "model": change.pop("model", REQUEST["model"])}
            params = {"ratio": 0.3, **change.pop("params", {})} if name != "none" else {}
            trial = spec_of("text-classification").draft_for(TrialRequest(**fields, params=params, seed=seed))
            assert trial is not None
            change |= {"recipe": {**trial.recipe, **change["recipe"]}} if "recipe" in change else {}
            versions = trial.result_versions | change.pop("result_versions", {})
            fields = {"data": DataRef(name="trec", fingerprint=FIRST), "result_versions": versions, **change}
            trial = trial.model_copy(update=fields)
            yield trial, libraries, value


@pytest.fixture(params=PAIRS)
def kind(request: pytest.FixtureRequest) -> str:
    """The difference of a pair."""
    return str(request.param)


@pytest.fixture
def place(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the trials of a pair in a database, and their suite; the data are elsewhere."""
    (folder / "mine.yaml").write_text(SUITE)
    monkeypatch.setenv("COLUMNS", "400")
    with open_store("sqlite:///dropbench.db") as store:
        for trial, libraries, value in trials(kind):
            metrics: list[Any] = [("test/accuracy", -1, value), ("train/loss", 0, value)]
            store.record([RunRecord(trial, "succeeded", None, [], metrics, libraries=libraries)])
        store.add_requests(requests(kind, load_suite("mine.yaml")))
    return folder


def requests(kind: str, suite: Suite) -> Iterator[Request]:
    """Yield a request of the first trials, then one of the second; of the same configurations, one of both."""
    both = list(trials(kind))
    seeds = tuple(sorted({trial.seed for trial, _, _ in both}))
    number = 1 if kind == "libraries" else 2
    for turn in range(number):
        cells: list[tuple[Cell, Candidates]] = []
        for cell in suite.cells(SuiteOptions(seeds=seeds)):
            own = [trial for trial, _, _ in both if trial.regularizer.name == cell.request.regularizer]
            own = own if number == 1 else own[min(turn, len(own) - 1) :][:1]
            cells.append((cell, [({}, own)]))
        made = make_request(suite, SuiteOptions(seeds=seeds), cells).request
        yield made.model_copy(update={"created_at": f"2026-01-0{turn + 1}T00:00:00.000+00:00"})


@pytest.fixture
def opened(place: Path) -> Iterator[Store]:
    """Its store."""
    with open_store("sqlite:///dropbench.db") as store:
        yield store


def expected(kind: str) -> set[float]:
    return {value for _, _, value in trials(kind)}


def check(text: str, kind: str, *, names: bool = True) -> None:
    """Check that a text has no mean of both trials and, if `names`, says what differs."""
    assert not MEANS.search(text), text
    if names:
        assert PAIRS[kind][0] in text, text


def test_results(place: Path, kind: str, call: Call) -> None:
    printed = call("results", "--format", "csv").out
    assert {row["mean"] for row in json.loads(call("results", "--json").out)} == expected(kind)
    check(call("results").out, kind)
    assert len(set(printed.splitlines())) == len(expected(kind)) + 1
    curves = json.loads(call("results", "--curve", "train/loss", "--json").out)
    assert {row["mean"] for row in curves} == expected(kind)


def test_results_by_group(place: Path, kind: str, call: Call) -> None:
    for keys in ("regularizer", "task", "data", "suite,regularizer", "seed", "ratio"):
        rows = json.loads(call("results", "--group-by", keys, "regularizer=dropkey", "--json").out)
        if kind in ASKED:
            assert [(row["mean"], row["pooled"]) for row in rows] == [(15.0, "2 configurations × 1 seed")]
        else:
            assert {row["mean"] for row in rows} == {10.0, 20.0}
            check(call("results", "--group-by", keys, "regularizer=dropkey").out, kind)


def test_what_differs_is_a_group_key_and_a_filter_key(place: Path, kind: str, call: Call) -> None:
    if kind == "recipes":
        return  # no key: their marks differ
    own = {"data folders": "fingerprint", "libraries": "libraries", "models": "model", "values of rescale": "rescale"}
    key = own.get(kind, "result_versions")
    assert all(key in row for row in json.loads(call("results", "--group-by", key, "--json").out))
    for comparison, mean in (("=", 20.0), ("!=", 10.0)):
        word = f"{key}{comparison}{PAIRS[kind][0]}"
        assert [row["mean"] for row in json.loads(call("results", word, "regularizer=dropkey", "--json").out)] == [mean]


def test_compare(place: Path, kind: str, call: Call) -> None:
    done = call("compare", "regularizer=none", "regularizer=dropkey")
    check(done.out, kind)
    rows = json.loads(call("compare", "regularizer=none", "regularizer=dropkey", "--json").out)
    assert {value for row in rows for value in (row["old_mean"], row["new_mean"])} - {None} == expected(kind)
    texts = [{name: value for name, value in row.items() if not name.startswith(("new_", "change"))} for row in rows]
    assert len({json.dumps(text) for text in texts}) == len(rows), "rows that look alike"
    if kind in ("versions of dropkey", "values of rescale"):  # one baseline for both
        assert {(row["old_mean"], row["new_mean"]) for row in rows} == {(50.0, 10.0), (50.0, 20.0)}


def test_rank(place: Path, kind: str, call: Call) -> None:
    ranking = json.loads(call("compare", "--rank", "--json").out)
    improvements = sorted(row["improvement"] for row in ranking["rows"] if row["regularizer"] == "dropkey")
    if kind in ("versions of dropkey", "values of rescale"):
        assert improvements == [-80.0, -60.0]
    elif kind == "recipes":  # never averaged: one of them is ranked
        assert improvements in ([-80.0], [-100 * 40 / 60])
        assert "trained with different recipes (clip_norm): each is ranked separately" in ranking["notes"]
        split = json.loads(call("compare", "--rank", "--by", "recipe", "--json").out)
        assert {row["recipe"] for row in split["rows"] + split["left_out_regularizers"]} == {
            None, "clip_norm=0.25", "clip_norm=1.0"
        }  # fmt: skip
    else:  # blocks of their own, whose improvements are averaged
        assert improvements == [pytest.approx((-80.0 - 100 * 40 / 60) / 2)]
        assert ranking["blocks"] == 2
    assert not any("means over" in note for note in ranking["notes"])


def test_report_and_page(place: Path, kind: str, call: Call) -> None:
    cells = _cells(call)
    assert {cell["mean"] for cell in cells} <= expected(kind)
    assert {cell["row"]: cell["mean"] for cell in cells}["dropkey"] == 20.0
    note = call("report", "mine.yaml", "--format", "html", "-o", "page.html").err
    if kind != "libraries":
        other = note.rpartition("--request ")[2].strip("`\n")
        assert {cell["row"]: cell["mean"] for cell in _cells(call, "--request", other)}["dropkey"] == 10.0
    main = place.joinpath("page.html").read_text(encoding="utf-8").partition("<main")[2].partition("<script")[0]
    assert "10.00" in main or "20.00" in main
    check(main, kind, names=False)


def test_dashboard(opened: Store, place: Path, kind: str) -> None:
    settings = Settings(runs=place / "runs", database="sqlite:///dropbench.db")
    client = TestClient(make_app(settings, activity), base_url="http://127.0.0.1")
    pages = [client.get("/"), client.get("/suite?name=mine")]
    links = {link for page in pages for link in re.findall(r'href="(/(?:suite|trial)[^"#]*)"', page.text)}
    pages += [client.get(link.replace("&amp;", "&")) for link in sorted(links)]
    assert [page.status_code for page in pages] == [200] * len(pages)
    text = "".join(page.text for page in pages if "text/html" in page.headers["content-type"])
    shown = [value for value in ("10.00", "20.00") if value in text]
    assert shown == (["20.00"] if kind == "libraries" else ["10.00", "20.00"]), "tables of their own"
    check(re.sub(r"<svg.*?</svg>|<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL), kind, names=False)


def test_views(place: Path, kind: str, call: Call) -> None:
    page = DOCS.joinpath("results.md").read_text(encoding="utf-8")
    query = next(line for line in page.splitlines() if line.startswith('dropbench db sql "SELECT suite, config_id'))
    done = call("db", "sql", query.split('"')[1])
    assert done.code == 0, done.err
    check(done.out, kind, names=kind != "recipes")  # another configuration


def test_frames(place: Path, kind: str) -> None:
    frame = dropbench.results().to_frame()
    assert set(frame["mean"]) == expected(kind)
    assert not frame.drop(columns=["mean", "low", "high"]).astype(str).duplicated().any()
    if kind not in ASKED:
        assert set(dropbench.results("regularizer=dropkey", group_by="task").to_frame()["mean"]) == {10.0, 20.0}


def test_the_example_for_pandas(place: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS.joinpath("results.md").read_text(encoding="utf-8")
    program = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "groupby" in block)
    monkeypatch.setattr(pandas.DataFrame, "to_string", lambda frame: frame.reset_index().to_csv())
    place.joinpath("example.py").write_text(program)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path("example.py")
    check(out.getvalue(), kind, names=kind != "recipes")


@pytest.mark.parametrize("kind", ["engine versions"], indirect=True)
def test_a_table_says_with_which_versions_it_was_trained(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_versions, "ENGINE", ENGINE + 1)
    assert "is current" not in call("report", "mine.yaml").out
    monkeypatch.setattr(result_versions, "ENGINE", ENGINE + 2)
    note = f"trained with result version {ENGINE + 1} of engine; version {ENGINE + 2} is current"
    assert note in " ".join(call("report", "mine.yaml").out.split())


@pytest.mark.parametrize("kind", ["versions of dropkey"], indirect=True)
def test_rows_of_an_older_rule_are_marked_in_every_table(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def marked(name: str, *arguments: str) -> set[float]:
        found = json.loads(call(*arguments, "--json").out)
        rows = found["rows"] if isinstance(found, dict) else found
        return {row[name] for row in rows if "older rule" in (row["mark"] or "")}

    tables = {
        ("mean", "results"): {10.0},
        ("mean", "results", "--group-by", "regularizer"): {10.0},
        ("mean", "results", "--curve", "train/loss"): {10.0},
        ("new_mean", "compare", "regularizer=none", "regularizer=dropkey"): {10.0},
        ("improvement", "compare", "--rank"): {-80.0},
    }
    assert all(marked(*arguments) == set() for arguments in tables)
    monkeypatch.setattr(UnitDrop, "result_version", 2)
    assert {arguments: marked(*arguments) for arguments in tables} == tables
    newer, older = call("report", "mine.yaml").out, call("report", "mine.yaml", "--request", _other(call)).out
    assert "older rule" not in newer
    assert re.search(r"dropkey +10\.00 +1‡", older)
    note = "‡ older rule: trained with result version 1 of regularizer dropkey; version 2 is current"
    assert note in " ".join(older.split())


def _other(call: Call) -> str:  # the request of the first trials, which is not the newest
    said = call("report", "mine.yaml", "--format", "html", "-o", "page.html").err
    return said.rpartition("--request ")[2].strip("`\n")


def _cells(call: Call, *options: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(call("report", "mine.yaml", "--format", "json", *options).out)["cells"]
    return cells
