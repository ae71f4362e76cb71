"""Ranks of a table's rows over its columns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dropbench.db.report.view.ranking import ranking_of
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import Suite, parse_suite
from tests.db.report import tables
from tests.db.report.tables import Values

DATA = ("trec", "mr", "cr", "subj", "snli")


def wide_suite(models: Sequence[str] = ("text-transformer",)) -> Suite:
    """Rows of none, dropout and dropkey per model, on five data sets."""
    rows = []
    for model in models:
        for name in ("none", "dropout", "dropkey"):
            trial = {"regularizer": name, "model": model, **({"params": {"ratio": 0.3}} if name != "none" else {})}
            rows.append({"label": f"{model} {name}", "baseline": name == "none", "trial": trial})
    return parse_suite(
        {
            "title": "Ranks", "source": "these tests", "metric": "accuracy",
            "trial": {"task": "text-classification"}, "rows": rows,
            "columns": [{"label": data, "trial": {"data": data}} for data in DATA],
            "presets": {"mini": {"seeds": 3}},
        },
        "ranks", "ranks.yaml",
    )  # fmt: skip


def filled_view(store: Store, suite: Suite) -> View:
    effects = {"none": 0.0, "dropout": 1.0, "dropkey": 3.0}
    values: Values = {
        (cell.row, cell.column): [
            50.0 + 5 * DATA.index(cell.column) + effects[cell.request.regularizer] + seed / 2 for seed in range(3)
        ]
        for cell in suite.cells(SuiteOptions())
    }
    return tables.filled(store, values, suite)


def test_columns_are_blocks(store: Store) -> None:
    ranking = ranking_of(filled_view(store, wide_suite()))
    assert [(row["regularizer"], row["rank"], row["groups"]) for row in ranking.rows] == [
        ("text-transformer dropkey", 1.0, "a"), ("text-transformer dropout", 2.0, "ab"), ("none", 3.0, "b"),
    ]  # fmt: skip
    assert ranking.blocks == 5
    gains = [100 * 3 / (50.5 + 5 * index) for index in range(5)]
    assert ranking.rows[0]["improvement"] == pytest.approx(sum(gains) / 5)


def test_each_baseline_starts_blocks(store: Store) -> None:
    """Rows of several models are ranked by regularizer."""
    ranking = ranking_of(filled_view(store, wide_suite(("text-transformer", "bert-tiny"))))
    assert ranking.blocks == 10
    assert [row["regularizer"] for row in ranking.rows][2] == "none"
    assert ranking.rows[0]["regularizer"].startswith("dropkey:ratio=0.3")
