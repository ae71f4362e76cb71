"""A table of three rows and two columns, against numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropbench.db.report.view.view import View, comparable
from dropbench.db.statistics.t_test import MIN_PAIRS, paired_t_test
from dropbench.db.store.store import Store, open_store
from dropbench.harness.errors import InputError
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.trials.metric import Metric
from dropbench.jobs.queue.request import metric_of
from tests.db.report import tables
from tests.db.report.tables import Values

LOSS = Metric("perplexity", higher_is_better=False, unit="")


def test_numbers(filled: View) -> None:
    base, best, worse = (filled.cells[row, "TREC"] for row in ("none", "dropkey 0.3", "dropkey 0.5"))
    assert [base.mean, base.std, base.n] == pytest.approx([83.0, 13**0.5, 3])
    assert (base.delta, base.paired) == (None, 0)
    assert base.delta_published == pytest.approx(83.0 - 88.4)
    assert [best.mean, best.delta, best.paired] == pytest.approx([85.0, 2.0, 3])
    assert [best.published, best.published_std, best.delta_published] == pytest.approx([90.0, 0.5, -5.0])
    assert [worse.n, worse.delta, worse.paired] == pytest.approx([2, -2.0, 2])
    assert (worse.published, worse.delta_published) == (None, None)
    assert [cell.best for cell in (base, best, worse)] == [False, True, False]
    unpaired = filled.cells["dropkey 0.3", "MR"]
    assert (unpaired.delta, unpaired.paired, unpaired.std, unpaired.best) == (5.0, 0, None, True)
    assert filled.cells["dropkey 0.5", "MR"].mean is None


def test_lower_can_be_better(store: Store) -> None:
    values: Values = {("none", "TREC"): (3.5,), ("dropkey 0.3", "TREC"): (2.25,)}
    view = tables.filled(store, values, tables.suite(["TREC"]), LOSS)
    # The metric's name only matters for what is shown: the values were stored as the suite calls them.
    assert [cell.best for cell in view.column("TREC")] == [False, True, False]
    assert "perplexity ↓" in tables.printed(view)
    assert "2.250 *" in tables.printed(view)


def test_a_single_result_is_not_marked_as_best(store: Store) -> None:
    view = tables.filled(store, {("none", "TREC"): (80.0, 81.0, 82.0)})
    assert not any(cell.best for cell in view.cells.values())


def test_all_tied_results_are_best(store: Store) -> None:
    values: Values = {("none", "TREC"): (80.0,), ("dropkey 0.3", "TREC"): (80.0,), ("dropkey 0.5", "TREC"): (70.0,)}
    view = tables.filled(store, values, tables.suite(["TREC"]))
    assert [cell.best for cell in view.column("TREC")] == [True, True, False]
    assert view.cells["dropkey 0.3", "TREC"].delta == 0.0


def test_the_baseline_is_the_nearest_above(store: Store) -> None:
    suite = tables.suite(["TREC"])
    cells = tables.resolve(suite)
    second = cells[1].cell.model_copy(update={"baseline": True})
    cells[1] = replace(cells[1], cell=second)
    tables.fill(store, cells, tables.values)
    view = tables.view(store, cells, suite)
    assert view.cells["dropkey 0.3", "TREC"].delta is None
    assert view.cells["dropkey 0.5", "TREC"].delta == pytest.approx(((79 - 82) + (84 - 90)) / 2)


def test_cells_are_comparable_unless_an_item_has_two_versions(filled: View) -> None:
    first, second = (filled.cells[row, "TREC"] for row in ("none", "dropkey 0.3"))
    for models, versions, expected in (
        ("ab", ("model a 11111111", "model b 22222222"), True),
        ("aa", ("model a 11111111", "model a 22222222"), False),
        ("aa", (None, "model a 2"), False),
        ("aa", (None, "regularizer mine 11111111, schedule mine 11111111"), True),
    ):
        cells = [
            replace(
                cell,
                cell=cell.cell.model_copy(update={"request": cell.cell.request.model_copy(update={"model": model})}),
                result_versions=version,
            )
            for cell, model, version in zip((first, second), models, versions, strict=True)
        ]
        assert comparable(*cells) == expected, versions


def test_metric_of_an_analysis() -> None:
    (first, *_) = tables.suite().cells(SuiteOptions())
    hidden = first.model_copy(update={"metric": "occlusion/accuracy@0.3"})
    assert metric_of(hidden) == Metric("accuracy", higher_is_better=True, unit="%")
    entropy = metric_of(first.model_copy(update={"metric": "entropy/last"}))
    assert (entropy, entropy.arrow) == (Metric("entropy", higher_is_better=None, unit=""), "")
    with pytest.raises(InputError, match="unknown analysis 'entrpy': did you mean entropy"):
        metric_of(first.model_copy(update={"metric": "entrpy/last"}))


def test_a_metric_without_direction_has_no_best(store: Store) -> None:
    values: Values = {("none", "TREC"): (3.5,), ("dropkey 0.3", "TREC"): (2.25,)}
    view = tables.filled(store, values, tables.suite(["TREC"]), Metric("kept", higher_is_better=None, unit=""))
    assert not any(cell.best for cell in view.column("TREC"))
    text = tables.printed(view)
    assert "kept " in text
    assert not any(mark in text for mark in ("↑", "↓", "2.250 *"))


@settings(max_examples=25)
@given(data=st.data())
def test_seeds_are_paired_if_some_are_missing(data: st.DataObject) -> None:
    """Values of different seeds are far apart, so that a wrong pairing changes the result."""
    suite = tables.suite(["TREC"])
    cells = tables.resolve(suite, SuiteOptions(seeds=tuple(range(6))))
    subsets: st.SearchStrategy[list[int]] = st.lists(st.sampled_from(range(6)), unique=True, min_size=1)
    base, ours = data.draw(subsets), data.draw(subsets)
    steps = data.draw(st.lists(st.integers(-50, 50), min_size=6, max_size=6))
    values: Values = {
        ("none", "TREC"): ["queued" if seed not in base else 1000.0 * seed for seed in range(6)],
        ("dropkey 0.3", "TREC"): ["queued" if seed not in ours else 1000.0 * seed + steps[seed] for seed in range(6)],
    }
    with open_store("sqlite://") as store:
        tables.fill(store, cells, values)
        result = tables.view(store, cells, suite).cells["dropkey 0.3", "TREC"]
    both = [float(steps[seed]) for seed in sorted({*base} & {*ours})]
    if not both:
        means = [sum(1000.0 * seed for seed in base) / len(base), sum(1000.0 * s + steps[s] for s in ours) / len(ours)]
        assert result.delta == pytest.approx(means[1] - means[0])
        assert (result.paired, result.interval) == (0, None)
        return
    expected = paired_t_test([(value, 0.0) for value in both])
    assert result.delta == pytest.approx(expected.mean)
    assert (result.paired, result.p_value, result.no_interval) == (len(both), expected.p, expected.no_interval)
    assert (result.interval is None) == (len(both) < MIN_PAIRS or len(set(both)) == 1)
    if result.interval:
        assert result.interval == pytest.approx((expected.low, expected.high))
