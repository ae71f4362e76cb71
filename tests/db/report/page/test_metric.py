"""Ranks and tuning budgets on the page of a suite."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dropbench.db.report.page.metric import budget_chart, ranks_chart
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import Candidate, Selection
from dropbench.harness.suites.search_space import Search, Sweep
from dropbench.harness.trials.metric import Metric
from tests.db.report.view.test_ranking import filled_view, wide_suite


def test_ranks_over_the_columns(store: Store) -> None:
    group = ranks_chart(filled_view(store, wide_suite()))
    assert group is not None
    ((_, _, picture),) = group.pictures
    assert picture.startswith("data:image/png;base64,")
    assert [row[0] for row in group.rows] == ["text-transformer dropkey", "text-transformer dropout", "none"]
    assert "none: the baseline, text-transformer none." in group.lead
    assert any("critical difference of the ranks: 1.48" in line for line in group.lead)
    (profile,) = group.charts
    assert profile.caption.startswith("Performance profile")
    assert len(profile.spec["data"]["values"]) == 3 * 41


def test_few_columns_are_not_ranked(filled: View) -> None:
    assert ranks_chart(filled) is None


def test_the_dev_score_over_the_budget(store: Store) -> None:
    """Of a grid whose candidates are done; those of tpe depend on each other."""
    view = filled_view(store, wide_suite())
    position = ("text-transformer dropkey", "trec")
    cell = view.cells[position].cell
    candidates = tuple(Candidate({"ratio": n / 10}, cell, "", (), "succeeded", dev=80.0 + n, n=1) for n in range(1, 4))
    grid = Selection(Sweep(space={}), candidates, Metric("accuracy"))
    swept = replace(view.cells[position], selection=grid)
    assert swept.expected_dev == pytest.approx([82.0, 82 + 2 / 3, 83.0])
    group = budget_chart(replace(view, cells={**view.cells, position: swept}))
    assert group is not None
    expected = ("82", "82.67", "83")
    assert group.rows == [("trec", position[0], str(k), value) for k, value in enumerate(expected, 1)]
    errors = replace(grid, metric=Metric("loss", higher_is_better=False, unit=""))
    assert replace(swept, selection=errors).expected_dev == pytest.approx([82.0, 81 + 1 / 3, 81.0])
    running = replace(grid, candidates=(*candidates, replace(candidates[0], state="running", dev=None)))
    tpe = replace(grid, sweep=Sweep(space={"ratio": [0.1, 0.2]}, search=Search(sampler="tpe", candidates=3)))
    for selection in (running, tpe, None):
        other = replace(swept, selection=selection)
        assert other.expected_dev is None
        assert budget_chart(replace(view, cells={**view.cells, position: other})) is None
