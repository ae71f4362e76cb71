"""What the cells and the lines around them say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from db.report.formats import as_json, as_latex, as_markdown
from db.report.layout import long_grid, number, wide_grid
from db.report.view import Asked, View
from db.store import Store
from harness.suite import Choice
from harness.task import Metric

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables

ACCURACY, LOSS = Metric("accuracy"), Metric("perplexity", higher_is_better=False, unit="")


def test_a_cell_says_why_it_is_empty(store: Store, tables: Tables) -> None:
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite)
    tables.fill(
        store, asked, {("none", "TREC"): ("ValueError: boom",) * 3, ("dropkey 0.3", "TREC"): (None, None, None)}
    )
    store.skip(asked[2].trials[0], "mine", "no token grid")
    lines = [" ".join(line.split()) for line in tables.drawn(tables.view(store, asked, suite)).splitlines()]
    assert lines[3] == "none failed [1] 88.40"
    assert lines[4] == "dropkey 0.3 no number [2] 90.00 ± 0.50" or lines[4].startswith("dropkey 0.3 succeeded")
    assert lines[5] == "dropkey 0.5 skipped [3]"
    assert "[1] seeds 0, 1, 2: failed: ValueError: boom" in lines
    assert "[2] seeds 0, 1, 2: succeeded: the run gave no finite accuracy" in lines
    assert "[3] seed 0: skipped: no token grid; seeds 1, 2: not run" in lines


def test_a_cell_without_trials_tells_the_reason(store: Store, tables: Tables) -> None:
    asked = tables.ask(tables.suite())
    asked[1] = Asked(asked[1].cell, (), "data 'mr' is not there")
    lines = [" ".join(line.split()) for line in tables.drawn(tables.view(store, asked), 120).splitlines()]
    assert "none not run skipped [1]" in lines
    assert "[1] data 'mr' is not there" in lines


def test_what_some_models_have_no_number_of_is_no_fault(store: Store, tables: Tables) -> None:
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite)
    tables.fill(
        store, asked, {("none", "TREC"): (None, None, None), ("dropkey 0.3", "TREC"): (0.5, 0.6, 0.7),
                       ("dropkey 0.5", "TREC"): (None, "ValueError: boom", None)}
    )  # fmt: skip
    metric = Metric("kept", higher_is_better=False, unit="", optional=True)
    lines = [
        " ".join(line.split()) for line in tables.drawn(tables.view(store, asked, suite, metric), 120).splitlines()
    ]
    assert any(line.startswith("none –") for line in lines)
    assert any(line.startswith("dropkey 0.5 failed [1]") for line in lines)
    assert not any("[2]" in line for line in lines)


def test_what_the_suite_says_itself_is_not_overridden(store: Store, tables: Tables) -> None:
    suite = tables.suite()
    row = suite.rows[0].model_copy(
        update={"trial": {**suite.rows[0].trial, "overrides": {"lr": 0.1}}, "presets": {"mini": {"epochs": 2}}}
    )
    suite = suite.model_copy(update={"rows": [row, *suite.rows[1:]]})
    for overrides, told in (({}, ""), ({"epochs": 3}, "recipe overridden: epochs=3")):
        text = tables.drawn(tables.view(store, tables.ask(suite, Choice(overrides=overrides)), suite), 120)
        assert [line.strip() for line in text.splitlines() if "overridden" in line] == [told] * bool(told)


def test_synthetic_data_and_overrides_are_marked(store: Store, tables: Tables) -> None:
    choice = Choice(data=("trec-synthetic", "mr"), overrides={"lr": 0.5}, preset="paper")
    asked = tables.ask(tables.suite(), choice)
    tables.fill(store, asked, {("none", "TREC"): (80.0,) * 5})
    view = tables.view(store, asked)
    assert view.cells["none", "TREC"].delta_published is None
    text = tables.drawn(view, 120)
    assert "TREC (synthetic)" in text
    assert "MR (synthetic)" not in text
    assert "not comparable with published numbers" in text
    assert "recipe overridden: lr=0.5" in text
    assert "preset" not in text
    assert "synthetic" in as_markdown(view)
    assert "synthetic" in as_latex(view)
    assert [one["synthetic"] for one in json.loads(as_json(view))["cells"]][:2] == [True, False]


def test_wide_and_long_tell_the_same_notes(filled: View) -> None:
    assert sorted(wide_grid(filled).notes) == sorted(long_grid(filled).notes)


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [
        (88.399, False, "88.40"),
        (-0.001, True, "0.00"),
        (-1.5, True, "−1.50"),
        (0.004, True, "0.00"),
        (2, True, "+2.00"),
    ],
)
def test_number(value: float, signed: bool, text: str) -> None:
    assert number(value, ACCURACY, signed=signed) == text
    assert number(None, ACCURACY) == ""
    assert number(0.12345, LOSS) == "0.123"


def test_counts_are_whole_and_readable() -> None:
    size = Metric("parameters", higher_is_better=False, unit="count")
    assert number(15_335_424.0, size) == "15,335,424"
    assert number(-105_768.0, size, signed=True) == "−105,768"
    assert number(0.2, size, signed=True) == "0"
