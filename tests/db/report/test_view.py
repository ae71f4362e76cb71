"""A table of three rows and two columns: its numbers worked out here by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.report.view import Asked, View, metric_of
from db.statistics import ENOUGH, paired
from db.store import Store, open_store
from harness.errors import InputError
from harness.suite import Choice
from harness.task import Metric

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables

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
    assert [one.best for one in (base, best, worse)] == [False, True, False]
    unpaired = filled.cells["dropkey 0.3", "MR"]
    assert (unpaired.delta, unpaired.paired, unpaired.std, unpaired.best) == (5.0, 0, None, True)
    assert filled.cells["dropkey 0.5", "MR"].mean is None


def test_lower_can_be_better(store: Store, tables: Tables) -> None:
    asked = tables.ask(tables.suite(["TREC"]))
    values: dict[tuple[str, str], Sequence[Any]] = {("none", "TREC"): (3.5,), ("dropkey 0.3", "TREC"): (2.25,)}
    tables.fill(store, asked, values)
    view = tables.view(store, asked, tables.suite(["TREC"]), LOSS)
    # The metric's name only matters for what is shown: the values were stored as the suite calls them.
    assert [one.best for one in view.column("TREC")] == [False, True, False]
    assert "perplexity ↓" in tables.drawn(view)
    assert "2.250 *" in tables.drawn(view)


def test_a_single_result_is_not_the_best_of_anything(store: Store, tables: Tables) -> None:
    asked = tables.ask(tables.suite())
    tables.fill(store, asked, {("none", "TREC"): (80.0, 81.0, 82.0)})
    assert not any(one.best for one in tables.view(store, asked).cells.values())


def test_ties_are_all_best(store: Store, tables: Tables) -> None:
    asked = tables.ask(tables.suite(["TREC"]))
    tables.fill(
        store, asked, {("none", "TREC"): (80.0,), ("dropkey 0.3", "TREC"): (80.0,), ("dropkey 0.5", "TREC"): (70.0,)}
    )
    view = tables.view(store, asked, tables.suite(["TREC"]))
    assert [one.best for one in view.column("TREC")] == [True, True, False]
    assert view.cells["dropkey 0.3", "TREC"].delta == 0.0


def test_rows_of_the_same_label(store: Store, tables: Tables) -> None:
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite, Choice(regularizers=("dropkey:ratio=0.3", "none", "dropout:ratio=0.1")))
    asked[3] = Asked(asked[3].cell.model_copy(update={"row": "dropkey 0.3"}), asked[3].trials)  # the very same trials
    asked[5] = Asked(asked[5].cell.model_copy(update={"row": "dropkey 0.3"}), asked[5].trials)  # other ones
    view = tables.view(store, asked, suite)
    assert view.rows == ("none", "dropkey 0.3", "dropkey 0.5", "dropkey 0.3 (2)")


def test_the_baseline_is_the_nearest_above(store: Store, tables: Tables) -> None:
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite)
    second = asked[1].cell.model_copy(update={"baseline": True})
    asked[1] = Asked(second, asked[1].trials)
    tables.fill(store, asked, tables.values)
    view = tables.view(store, asked, suite)
    assert view.cells["dropkey 0.3", "TREC"].delta is None
    assert view.cells["dropkey 0.5", "TREC"].delta == pytest.approx(((79 - 82) + (84 - 90)) / 2)


def test_metrics_of_analyses_are_the_tasks_under_a_condition_or_neither_better_nor_worse(tables: Tables) -> None:
    (first, *_) = tables.suite().cells(Choice())
    hidden = first.model_copy(update={"metric": "occlusion/accuracy@0.3"})
    assert metric_of(hidden) == Metric("accuracy", higher_is_better=True, unit="%")
    entropy = metric_of(first.model_copy(update={"metric": "entropy/last"}))
    assert (entropy, entropy.arrow) == (Metric("entropy", higher_is_better=None, unit=""), "")
    with pytest.raises(InputError, match="unknown analysis 'entrpy': did you mean entropy"):
        metric_of(first.model_copy(update={"metric": "entrpy/last"}))


def test_what_is_neither_better_nor_worse_has_no_best(store: Store, tables: Tables) -> None:
    asked = tables.ask(tables.suite(["TREC"]))
    tables.fill(store, asked, {("none", "TREC"): (3.5,), ("dropkey 0.3", "TREC"): (2.25,)})
    view = tables.view(store, asked, tables.suite(["TREC"]), Metric("kept", higher_is_better=None, unit=""))
    assert not any(one.best for one in view.column("TREC"))
    drawn = tables.drawn(view)
    assert "kept " in drawn
    assert not any(mark in drawn for mark in ("↑", "↓", "2.250 *"))


def test_metric_of_a_real_task(tables: Tables) -> None:
    (first, *_) = tables.suite().cells(Choice())
    assert metric_of(first) == Metric("accuracy", higher_is_better=True, unit="%")
    with pytest.raises(InputError, match="unknown metric of text-classification 'acuracy': did you mean accuracy"):
        metric_of(first.model_copy(update={"metric": "acuracy"}))


@settings(max_examples=25)
@given(data=st.data())
def test_seeds_are_paired_whichever_are_missing(data: st.DataObject, tables: Tables) -> None:
    """Each seed's value lies far from the others', so that a wrong pairing shows."""
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite, Choice(seeds=tuple(range(6))))
    there: st.SearchStrategy[list[int]] = st.lists(st.sampled_from(range(6)), unique=True, min_size=1)
    base, ours = data.draw(there), data.draw(there)
    steps = data.draw(st.lists(st.integers(-50, 50), min_size=6, max_size=6))
    values: dict[tuple[str, str], Sequence[Any]] = {
        ("none", "TREC"): ["queued" if seed not in base else 1000.0 * seed for seed in range(6)],
        ("dropkey 0.3", "TREC"): ["queued" if seed not in ours else 1000.0 * seed + steps[seed] for seed in range(6)],
    }
    with open_store("sqlite://") as store:
        tables.fill(store, asked, values)
        found = tables.view(store, asked, suite).cells["dropkey 0.3", "TREC"]
    both = [float(steps[seed]) for seed in sorted({*base} & {*ours})]
    if not both:
        means = [sum(1000.0 * seed for seed in base) / len(base), sum(1000.0 * s + steps[s] for s in ours) / len(ours)]
        assert found.delta == pytest.approx(means[1] - means[0])
        assert (found.paired, found.interval) == (0, None)
        return
    expected = paired(both)
    assert found.delta == pytest.approx(expected.mean)
    assert (found.paired, found.p_value) == (len(both), expected.p)
    assert (found.interval is None) == (len(both) < ENOUGH)
    if found.interval:
        assert found.interval == pytest.approx((expected.low, expected.high))
