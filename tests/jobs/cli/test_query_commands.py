"""`dropbench results`, and `compare` as the command line runs them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import open_store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import RunDirectory
from tests.db.conftest import Call
from tests.db.records import make_trial
from tests.requests import named

BAD = '=1+1 <b>"x"</b> \x1b[31m\u202e_$'
"""A metric name that every output format must escape."""


@pytest.fixture
def filled(folder: Path) -> Path:
    """Three seeds of none and of dropkey on two data sets, with a curve; and a queued trial."""
    records = []
    for regularizer, more in (("none", 0.0), ("dropkey", 1.5)):
        for data in ("trec", "mr"):
            for seed in range(3):
                params = {} if regularizer == "none" else {"ratio": 0.3}
                trial = make_trial(seed, data=data, regularizer=RegularizerSpec(name=regularizer, params=params))
                value = 80.0 + 2 * seed * (1 + more) + more
                curve: list[Any] = [("train/loss", step, 2.0 - step / 100 + seed) for step in range(0, 50, 10)]
                finals = [("test/accuracy", -1, value), ("dev/accuracy", -1, value + 1)]
                records.append(RunRecord(trial, "succeeded", None, [], [*finals, *curve]))
    with open_store("sqlite:///dropbench.db") as store:
        store.record(records)
        store.add_requests([named("mine", *(record.trial for record in records))])
        store.enqueue([make_trial(0, data="cr")], [named("mine", make_trial(0, data="cr"))])
    return folder


def test_states_of_active_trials_are_dated(call: Call, filled: Path) -> None:
    note = "submitted, running: at the last `dropbench status` on the machine with their run directories"
    assert note not in call("results").out
    with open_store("sqlite:///dropbench.db") as store:
        store.record([RunRecord(make_trial(0, data="cr"), "running")])
    assert call("results").out.splitlines()[-1] == note
    assert call("results", "data=trec").out.count(note) == 0


COMMANDS = {
    "aggregates": ("results", "--aggregate", "mean,sem,median,min,max,n"),
    "wide": ("results", "--metric", "accuracy,dev/accuracy", "--wide"),
    "curve": ("results", "--curve", "loss", "--group-by", "data,regularizer"),
    "compare": ("compare", "regularizer=none", "regularizer=dropkey"),
    "rank": ("compare", "--rank", "not", "data=cr"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_every_format_has_the_same_numbers(call: Call, filled: Path, command: tuple[str, ...]) -> None:
    content = json.loads(call(*command, "--json").out)
    rows = content if isinstance(content, list) else content["rows"]
    assert call(*command, "--format", "csv", "-o", "out.csv").code == 0
    assert call(*command, "--format", "parquet", "-o", "out.parquet").code == 0
    numbers = [name for name, value in rows[0].items() if type(value) in (int, float)]
    assert numbers
    for frame in (pandas.read_csv("out.csv"), pandas.read_parquet("out.parquet")):
        assert list(frame.columns) == list(rows[0])
        for name in numbers:
            expected = [float("nan") if row[name] is None else row[name] for row in rows]
            assert frame[name].astype(float).tolist() == pytest.approx(expected, abs=0, rel=1e-15, nan_ok=True)
    for kind, row in (("md", "| "), ("tex", r" \\"), ("table", "")):
        done = call(*command, "--format", kind)
        assert (done.code, done.err) == (0, "")
        assert row in done.out
        assert len(done.out.splitlines()) > 2


def test_aggregates(call: Call, filled: Path) -> None:
    (row,) = json.loads(call(*COMMANDS["aggregates"], "data=mr", "regularizer=dropkey", "--json").out)
    assert (row["mean"], row["median"], row["min"], row["max"], row["n"]) == (86.5, 86.5, 81.5, 91.5, 3)
    assert row["sem"] == pytest.approx(5 / 3**0.5)
    assert "std" not in row
    assert "did you mean median" in call("results", "--aggregate", "medain").err


def test_wide(call: Call, filled: Path) -> None:
    rows = json.loads(call(*COMMANDS["wide"], "--group-by", "regularizer", "succeeded", "--json").out)
    assert list(rows[0]) == [
        "regularizer", "mark", "accuracy mean", "accuracy std", "accuracy n", "accuracy pooled", "dev/accuracy mean",
        "dev/accuracy std", "dev/accuracy n", "dev/accuracy pooled", "state",
    ]  # fmt: skip
    assert [row["dev/accuracy mean"] - row["accuracy mean"] for row in rows] == [1.0, 1.0]
    assert {row["dev/accuracy pooled"] for row in rows} == {"2 configurations × 3 seeds"}
    (waits,) = json.loads(call(*COMMANDS["wide"], "data=cr", "--json").out)
    assert (waits["accuracy n"], waits["accuracy mean"], waits["accuracy published"]) == (0, None, None)
    lines = [" ".join(line.split()) for line in call(*COMMANDS["wide"], "data=mr").out.splitlines()]
    assert "regularizer accuracy dev/accuracy state" in lines
    assert "none 82.00 ± 2.00 83.00 ± 2.00 succeeded" in lines


def test_curves(call: Call, filled: Path) -> None:
    command = ("results", "--curve", "train/loss", "data=mr", "regularizer=none")
    rows = json.loads(call(*command, "--json").out)
    assert [(row["step"], row["n"], row["suite"]) for row in rows] == [(step, 3, "mine") for step in range(0, 50, 10)]
    assert [row["mean"] for row in rows] == pytest.approx([3.0 - step / 100 for step in range(0, 50, 10)])
    assert [row["std"] for row in rows] == pytest.approx([1.0] * 5)
    thin = json.loads(call(*command, "--every", "3", "--json").out)
    assert [row["step"] for row in thin] == [0, 30, 40]
    assert json.loads(call("results", "--curve", "loss", "queued", "--json").out) == []
    assert "did you mean train/loss" in call("results", "--curve", "train/los").err
    assert call("results", "--curve", "loss", "--wide").code == 2
    assert call("results", "--every", "2").code == 2


def test_sorted_and_cut(call: Call, filled: Path) -> None:
    def seen(*keys: str) -> list[Any]:
        rows = json.loads(call("results", *keys, "--json").out)
        return [(row["data"], row["regularizer"], row["n"]) for row in rows]

    three = seen("--sort", "-mean,data", "--limit", "3")
    assert three == [("mr", "dropkey", 3), ("trec", "dropkey", 3), ("mr", "none", 3)]
    assert seen("--sort", "mean")[-1] == ("cr", "dropkey", 0)
    assert seen("--sort=-mean")[-1] == ("cr", "dropkey", 0)
    assert [row[1] for row in seen("--sort", "ratio", "not", "data=cr")] == ["dropkey", "dropkey", "none", "none"]
    assert "did you mean mean" in call("results", "--sort", "maen").err


def test_compare(call: Call, filled: Path) -> None:
    done = call(*COMMANDS["compare"])
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[:2] == ["old: none", "new: dropkey:ratio=0.3"]
    assert "mr accuracy 82.00 ± 2.00 (3) 86.50 ± 5.00 (3) +4.50 [−2.95, +11.95] 3 better, within noise" in lines
    alone = "only in new: text-classification cr text-transformer dropkey:ratio=0.3 mini"
    assert lines[-5:] == [
        "2 compared: 2 better, 0 worse, 0 neither",
        "2 tested: 0 intervals without 0; significant at 5 %: 0 after Holm's correction, 0 after Benjamini-Hochberg's",
        "within noise: the interval of the change contains 0",
        "accuracy: noise floor 2.00 (pooled std of old over seeds); detectable difference 10.75 (3 pairs, after"
        " Holm's correction for 2 differences)",
        alone,
    ]
    assert "unknown state, suite or trial id 'dropkey'" in call("compare", "data=mr dropkey", "mine").err
    single = call("compare", "regularizer=none data=mr", "regularizer=dropkey data=mr").out
    assert "none: 82.00 ± 2.00 (3)" in single


@pytest.mark.parametrize("kind", ["table", "md", "tex", "csv", "json"])
def test_equal_differences_have_no_interval(call: Call, folder: Path, kind: str) -> None:
    with open_store("sqlite:///dropbench.db") as store:
        for name, value in (("none", 80.0), ("dropkey", 84.0)):
            for data in ("trec", "mr", "cr"):
                for seed in range(3):
                    trial = make_trial(seed, data=data, regularizer=RegularizerSpec(name=name))
                    store.record([RunRecord(trial, "succeeded", metrics=[("test/accuracy", -1, value + seed / 3)])])
    compared = call("compare", "regularizer=none", "regularizer=dropkey", "--format", kind)
    assert compared.code == 0
    assert compared.out.count("equal differences") == 3
    ranked = call("compare", "--rank", "--format", kind)
    assert ranked.out.count("equal differences") == 1
    if kind == "json":
        row = json.loads(compared.out)[0]
        assert (row["low"], row["high"], row["no_interval"]) == (None, None, "equal differences")
        assert row["change"] == pytest.approx(4.0)
    if kind == "table":
        assert "better, untested" in compared.out


@pytest.mark.parametrize("kind", ["table", "md", "tex", "csv", "json"])
def test_data_other_than_published_are_marked(call: Call, folder: Path, kind: str) -> None:
    """A subset by the notes of its runs, as in reports, and generated data by their name."""
    suite, column = "dropattention/table3", {"ratio": 0.3, "window": 1, "unit": "column", "rescale": "renormalize"}
    with open_store("sqlite:///dropbench.db") as store:
        for data, notes in (("trec", ["subset: train: 60 rows"]), ("mr", []), ("cr-synthetic", [])):
            for spec in (RegularizerSpec(name="none"), RegularizerSpec(name="dropattention-c", params=column)):
                trial = make_trial(0, data=data, regularizer=spec)
                store.record([RunRecord(trial, "succeeded", None, [], [("test/accuracy", -1, 50.0)])])
                store.add_requests([named(suite, trial, published=88.4)])
                RunDirectory.create(folder / "runs", trial).write_result({"metrics": {}, "notes": notes})
    shown = call("results", "--format", kind, "--sort", "data").out
    assert shown.count("subset") == 2
    assert re.search(r"88\.40?.*subset", shown) or kind == "json"
    compared = call("compare", "regularizer=none", "regularizer=dropattention-c", "--format", kind).out
    assert compared.count("subset") == 1
    assert call("compare", "--rank", "--format", kind).out.count("subset") == (0 if kind == "csv" else 1)
    if kind == "json":
        marks = [(row["data"], row["mark"]) for row in json.loads(shown) if row["regularizer"] == "none"]
        assert marks == [("cr-synthetic", "synthetic"), ("mr", None), ("trec", "subset")]
        rows = json.loads(call("results", "--group-by", "regularizer", "--json").out)
        assert {row["mark"] for row in rows} == {"subset, synthetic"}
        (row,) = json.loads(call("results", "data=trec,mr", "--group-by", "suite", "--json").out)
        assert (row["mark"], row["pooled"]) == ("subset", "4 configurations × 1 seed")


def test_compare_databases(call: Call, filled: Path) -> None:
    shutil.copy("dropbench.db", "before.db")
    trial = make_trial(0, data="mr", regularizer=RegularizerSpec(name="none"))
    with open_store("sqlite:///dropbench.db") as store:
        store.record([RunRecord(trial, "succeeded", None, [], [("test/accuracy", -1, 70.0)])])
    rows: list[dict[str, Any]] = []
    for old in ("before.db", "before.db not data=cr"):
        rows = json.loads(call("compare", old, "dropbench.db", "--json").out)
        changed = [(row["data"], row["regularizer"], row["change"]) for row in rows if row["change"]]
        assert changed == [("mr", "none", pytest.approx(-10 / 3))]
    assert {row["only"] for row in rows} == {None, "new"}
    assert "no such file: expected a database" in call("compare", "nowhere.db", "mine").err
    assert "did you mean mine" in call("compare", "mne", "mine").err


def test_rank(call: Call, filled: Path) -> None:
    done = call(*COMMANDS["rank"])
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert any(line.startswith("dropkey 1.00 2/2 +5.49% +") for line in lines)
    assert any(line.startswith("none 2.00 0/2 ") for line in lines)
    assert any(line.startswith("P(improvement): ") for line in lines)
    content = json.loads(call("compare", "--rank", "--json").out)
    assert list(content) == [
        *("rows", "blocks", "left_out", "left_out_regularizers", "friedman"),
        *("critical_difference", "pairs", "profiles", "notes"),
    ]
    assert (content["blocks"], content["left_out"], content["left_out_regularizers"]) == (2, [], [])


def test_nothing(call: Call, folder: Path) -> None:
    for command in (("results", "--wide"), ("results", "--curve", "loss"), ("compare", "", ""), ("compare", "--rank")):
        done = call(*command)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("no results")
    assert json.loads(call("compare", "", "", "--json").out) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("results", "--wide"), ("results",), ("compare", "data=mr", "data=trec"), ("compare", "--rank")]
)
def test_names_come_out_harmless(call: Call, folder: Path, command: tuple[str, ...]) -> None:
    with open_store("sqlite:///dropbench.db") as store:
        for data in ("mr", "trec"):
            trial = make_trial(0, data=data, model=BAD, preset=BAD + "x" * 10_000, overrides={BAD: BAD})
            store.record([RunRecord(trial, "succeeded", None, [], [(f"test/{BAD}", -1, 1.0)])])
            store.add_requests([named(BAD, trial)])
    for kind in ("table", "md", "tex", "csv"):
        done = call(*command, "--format", kind)
        assert (done.code, done.err) == (0, "")
        assert "\x1b" not in done.out
        assert "\u202e" not in done.out
        if kind == "csv":
            cells = [cell for row in csv.reader(io.StringIO(done.out)) for cell in row]
            assert not any(cell.startswith(("=", "@", "+")) for cell in cells)
        if kind == "tex":
            assert "_$" not in done.out
    assert call(*command, "--json").code == 0


LISTINGS = [
    ["results"],
    ["results", "--wide", "--metric", "all", "--group-by", "task,data,model,regularizer,preset"],
    ["compare", "regularizer=none", "regularizer=dropkey"],
    ["compare", "--rank", "--by", "ratio"],
    ["db", "sql", "SELECT trial_id, task, data, model, regularizer, params, preset, state FROM v_trials"],
]


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_names_are_whole_on_a_terminal(
    words: list[str], filled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns, texts wrap at spaces and after hyphens and the like; words do not."""
    from dropbench.harness.cli.main import run

    monkeypatch.setenv("COLUMNS", "80")
    assert run(words) == 0
    unlimited = capsys.readouterr().out
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stdout, "isatty", lambda: True)
        assert run(words) == 0
    shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= 80
    names = {word for word in re.split(r"[\s/,:-]+", unlimited) if re.search("[a-z]", word)}
    assert [word for word in names if word not in shown] == []


def test_why_a_filter_has_no_results(call: Call, filled: Path) -> None:
    for words in (["mine", "preset=paper"], ["preset=paper"]):
        why = f"no trial matches '{' '.join(words)}'; without `preset=paper`, 13 trials (preset=mini)"
        assert call("results", *words).out == f"no results: {why}\n"
    out = call("results", "mine", "data=mr", "not", "model=text-transformer").out
    assert "; without `not model=text-transformer`, 6 trials (model=text-transformer)\n" in out
    assert json.loads(call("results", "mine", "preset=paper", "--json").out) == []
