"""Texts of cells, notes and the legend."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dropbench.db.report.formats.documents import as_json, as_latex, as_markdown
from dropbench.db.report.formats.layout import long_grid, wide_grid
from dropbench.db.report.formats.numbers import format_metric, mean_std
from dropbench.db.report.page.document import page
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.trials.metric import Metric
from tests.db.report import tables
from tests.db.report.tables import Values
from tests.requests import named

ACCURACY, LOSS = Metric("accuracy"), Metric("perplexity", higher_is_better=False, unit="")


def test_a_cell_says_why_it_is_empty(store: Store) -> None:
    suite = tables.suite(["TREC"])
    cells = tables.resolve(suite)
    tables.fill(
        store, cells, {("none", "TREC"): ("ValueError: boom",) * 3, ("dropkey 0.3", "TREC"): (None, None, None)}
    )
    store.enqueue([cells[2].trials[0]], [named("mine", cells[2].trials[0])])
    store.set_states({cells[2].trials[0].id: ("skipped", "no token grid")})
    lines = [" ".join(line.split()) for line in tables.printed(tables.view(store, cells, suite)).splitlines()]
    assert lines[3] == "none failed [1] 88.40"
    assert lines[4] == "dropkey 0.3 no number [2] 90.00 ± 0.50" or lines[4].startswith("dropkey 0.3 succeeded")
    assert lines[5] == "dropkey 0.5 skipped [3]"
    assert "[1] seeds 0, 1, 2: failed: ValueError: boom" in lines
    assert "[2] seeds 0, 1, 2: succeeded: the run reported no finite accuracy" in lines
    assert "[3] seed 0: skipped: no token grid; seeds 1, 2: not run" in lines


def test_the_legend_of_a_single_seed(store: Store) -> None:
    cells = tables.resolve(tables.suite(), SuiteOptions(seeds=(4,)))
    text = tables.printed(tables.view(store, cells), 120)
    assert "test accuracy in %: seed 4 alone; *: best in its column" in text


def test_a_missing_optional_metric_has_no_note(store: Store) -> None:
    values: Values = {
        ("none", "TREC"): (None, None, None),
        ("dropkey 0.3", "TREC"): (0.5, 0.6, 0.7),
        ("dropkey 0.5", "TREC"): (None, "ValueError: boom", None),
    }
    metric = Metric("kept", higher_is_better=False, unit="", optional=True)
    view = tables.filled(store, values, tables.suite(["TREC"]), metric)
    lines = [" ".join(line.split()) for line in tables.printed(view, 120).splitlines()]
    assert any(line.startswith("none –") for line in lines)
    assert any(line.startswith("dropkey 0.5 failed [1]") for line in lines)
    assert not any("[2]" in line for line in lines)


def test_overrides_of_the_suite_itself_are_not_listed(store: Store) -> None:
    suite = tables.suite()
    row = suite.rows[0].model_copy(
        update={"trial": {**suite.rows[0].trial, "overrides": {"lr": 0.1}}, "presets": {"mini": {"epochs": 2}}}
    )
    suite = suite.model_copy(update={"rows": [row, *suite.rows[1:]]})
    for overrides, line in (({}, ""), ({"epochs": 3}, "recipe overridden: epochs=3")):
        options = SuiteOptions(overrides=overrides)
        view = tables.view(store, tables.resolve(suite, options), suite, options=options)
        lines = tables.printed(view, 120).splitlines()
        assert [text.strip() for text in lines if "overridden" in text] == [line] * bool(line)


def test_synthetic_data_and_overrides_are_marked(store: Store) -> None:
    choice = SuiteOptions(data=("trec-synthetic", "mr"), overrides={"lr": 0.5}, preset="paper")
    cells = tables.resolve(tables.suite(), choice)
    tables.fill(store, cells, {("none", "TREC"): (80.0,) * 5})
    view = tables.view(store, cells, options=choice)
    assert view.cells["none", "TREC"].delta_published is None
    text = tables.printed(view, 120)
    assert "TREC (synthetic)" in text
    assert "MR (synthetic)" not in text
    assert "not comparable with published numbers" in text
    assert "recipe overridden: lr=0.5" in text
    assert "preset" not in text
    assert "synthetic" in as_markdown(view)
    assert "synthetic" in as_latex(view)
    assert [record["synthetic"] for record in json.loads(as_json(view))["cells"]][:2] == [True, False]


def test_wide_and_long_have_the_same_notes(filled: View) -> None:
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
    assert format_metric(value, ACCURACY, signed=signed) == text
    assert format_metric(None, ACCURACY) == ""
    assert format_metric(0.12345, LOSS) == "0.123"
    assert format_metric(6e-5, LOSS) == "6.00e−05"
    assert mean_std(6e-5, 2e-6, LOSS) == "6.00e−05 ± 2.00e−06"
    assert mean_std(3.0, 2e-6, LOSS) == "3.000 ± 0.000"
    assert mean_std(6e-5, 2e-6, replace(LOSS, decimals=6)) == "0.000060 ± 0.000002"
    assert mean_std(12345.6, 0.5, replace(LOSS, decimals=0)) == "12,346 ± 0"


def test_counts_have_no_decimals_but_separators() -> None:
    size = Metric("parameters", higher_is_better=False, unit="count")
    assert format_metric(15_335_424.0, size) == "15,335,424"
    assert format_metric(-105_768.0, size, signed=True) == "−105,768"
    assert format_metric(0.2, size, signed=True) == "0"


@pytest.mark.parametrize("columns", [["TREC"], ["TREC", "MR"]])
def test_the_notes_of_the_suite_are_below_the_table_in_every_format(store: Store, columns: list[str]) -> None:
    suite = tables.suite(columns).model_copy(update={"notes": ["the source prints two values"]})
    view = tables.view(store, tables.resolve(suite), suite)
    texts = tables.printed(view), as_markdown(view), as_latex(view)
    assert all(text.count("the source prints two values") == 1 for text in texts)
    assert page(view, store, Path("runs")).count("<li>the source prints two values</li>") == 1
