from __future__ import annotations

import statistics
from typing import Any

import pytest
from scipy.stats import ttest_rel

from dropbench.db.queries.compare import compare
from dropbench.db.queries.sides import read_sides
from dropbench.db.report.formats.comparison_tables import comparison_table
from dropbench.db.schema.connection import reading
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.settings import MAX_SEEDS
from dropbench.harness.trials.trial import Trial
from tests.db.records import done, make_trial
from tests.requests import named

NONE = RegularizerSpec(name="none")
BEFORE, AFTER = {0: 80.0, 1: 82.0, 2: 84.0, 3: 90.0}, {0: 81.0, 1: 84.5, 2: 84.0, 7: 70.0}


def both(trial: Trial, value: float) -> RunRecord:
    """Return the record of a trial with a metric that has a direction, and one that has none."""
    return done(trial, value, ("test/x", -1, -value))


def compare_words(store: Store, old: str, new: str, *metrics: str) -> list[dict[str, Any]]:
    with reading(store.engine) as connection:
        return compare(*read_sides([(connection, words.split()) for words in (old, new)], metrics))


@pytest.fixture
def filled(store: Store) -> Store:
    for data in ("trec", "mr"):
        store.record([both(make_trial(seed, data=data, regularizer=NONE), v) for seed, v in BEFORE.items()])
        store.record([both(make_trial(seed, data=data), value) for seed, value in AFTER.items()])
    store.record([both(make_trial(0, data="cr"), 50.0)])
    trials = store.trials(list(store.states())).values()
    old = [trial for trial in trials if trial.regularizer == NONE]
    store.add_requests([named("old", *old), named("new", *(trial for trial in trials if trial not in old))])
    return store


def test_two_regularizers_on_all_that_both_have(filled: Store) -> None:
    rows = compare_words(filled, "regularizer=none", "regularizer=dropkey", "accuracy")
    assert [(row["data"], row["only"]) for row in rows] == [("mr", None), ("trec", None), ("cr", "new")]
    row = rows[1]
    assert (row["regularizer"], row["params"], row["old"]["regularizer"], row["new"]["ratio"]) == (
        None,
        {},
        "none",
        0.3,
    )
    assert (row["old_mean"], row["old_n"], row["new_n"]) == (84.0, 4, 4)
    assert row["old_std"] == statistics.stdev(BEFORE.values())
    expected = ttest_rel([81.0, 84.5, 84.0], [80.0, 82.0, 84.0])
    interval = expected.confidence_interval(0.95)
    assert (row["pairs"], row["change"]) == (3, pytest.approx(3.5 / 3))
    assert (row["low"], row["high"]) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert (row["better"], row["verdict"]) == (True, "better, within noise")
    assert (rows[2]["old_n"], rows[2]["new_mean"], rows[2]["change"], rows[2]["better"]) == (0, 50.0, None, None)


def test_the_other_way_round_is_worse(filled: Store) -> None:
    (row, *_) = compare_words(filled, "new data=mr", "old data=mr", "accuracy")
    assert (row["change"], row["better"]) == (pytest.approx(-3.5 / 3), False)


def test_a_metric_without_a_direction_is_neither(filled: Store) -> None:
    rows = compare_words(filled, "old data=mr", "new data=mr")
    assert [(row["metric"], row["better"]) for row in rows] == [("accuracy", True), ("x", None)]
    assert comparison_table(rows).below[:2] == [
        "2 compared: 1 better, 0 worse, 1 neither",
        "no direction is known for x (if it is a plug-in's: add `--plugin FILE`)",
    ]


def test_seeds_that_nobody_shares_leave_the_difference_of_means(filled: Store) -> None:
    (row,) = compare_words(filled, "old data=mr seed<2", "old data=mr seed>=2", "accuracy")
    assert (row["regularizer"], row["old"], row["new"], row["only"]) == ("none", {}, {}, None)
    assert (row["change"], row["pairs"], row["low"]) == (87.0 - 81.0, 0, None)


def test_a_verdict_says_how_certain_it_is(store: Store) -> None:
    """Holm's correction counts all comparisons of the table whose metric has a direction."""
    changes = {"trec": (1.0, 1.1, 1.2), "mr": (1.0, 1.5, 2.0), "cr": (-1.0, 1.0, 2.0), "subj": (-1.0, -1.0, -1.0)}
    for data, values in changes.items():
        for seed, change in enumerate(values):
            store.record([both(make_trial(seed, data=data, regularizer=NONE), 80.0)])
            store.record([both(make_trial(seed, data=data), 80.0 + change)])
    rows = {row["data"]: row for row in compare_words(store, "regularizer=none", "not regularizer=none", "accuracy")}
    assert {data: row["verdict"] for data, row in rows.items()} == {
        "trec": "better", "mr": "better, uncorrected", "cr": "better, within noise", "subj": "worse, untested",
    }  # fmt: skip
    p_values = [ttest_rel(values, (0.0, 0.0, 0.0)).pvalue for values in list(changes.values())[:3]]
    assert [rows[data]["p_holm"] for data in ("trec", "mr", "cr")] == pytest.approx(
        [3 * p_values[0], 2 * p_values[1], p_values[2]]
    )
    assert rows["mr"]["p_bh"] == pytest.approx(1.5 * p_values[1])
    unknown = compare_words(store, "regularizer=none", "not regularizer=none", "x")
    assert {(row["p_holm"], row["verdict"]) for row in unknown} == {(None, None)}


def test_what_both_have_values_of_is_matched(store: Store) -> None:
    """Equal ratios are paired although the regularizers differ; windows are ignored, as none occurs on both sides."""
    for ratio in (0.1, 0.2):
        for name, window in (("dropkey", 2), ("dropout", 3)):
            spec = RegularizerSpec(name=name, params={"ratio": ratio, "window": window})
            store.record([both(make_trial(0, regularizer=spec), ratio * window)])
    rows = compare_words(store, "regularizer=dropkey", "regularizer=dropout", "accuracy")
    assert [row["params"] for row in rows] == [{"ratio": 0.1}, {"ratio": 0.2}]
    assert rows[0]["old"] == {"regularizer": "dropkey", "window": 2}
    rows = compare_words(store, "window=2 ratio=0.1", "window=3", "accuracy")
    assert [(row["params"], row["only"]) for row in rows] == [
        ({"ratio": 0.1}, None),
        ({"ratio": 0.2, "window": 3}, "new"),
    ]


def test_a_recipe_that_changed_is_told(store: Store) -> None:
    first, second = make_trial(0), make_trial(0, recipe={"epochs": 3, "lr": 0.001})
    store.record([both(first, 1.0), both(second, 2.0)])
    store.add_requests([named("a", first), named("b", second)])
    (row,) = compare_words(store, "a", "b", "accuracy")
    assert (row["old"], row["new"]) == ({"recipe.epochs": "2"}, {"recipe.epochs": "3"})


def test_what_has_no_result_is_there(store: Store) -> None:
    trials = [make_trial(0), make_trial(1), make_trial(0, data="mr")]
    store.enqueue(trials, [named("a", trials[0]), named("b", *trials[1:])])
    rows = compare_words(store, "a", "b")
    assert [(row["data"], row["metric"], row["only"], row["old_n"]) for row in rows] == [
        ("trec", None, None, 0), ("mr", None, "new", 0),
    ]  # fmt: skip
    assert compare_words(store, "quickstart", "quickstart") == []


def test_only_what_tuning_has_chosen_is_compared_and_its_seeds_are_not(store: Store) -> None:
    """Two columns chose other learning rates, which then match; a filter that names seeds or trials has all trials."""
    chosen, others = {}, set()
    for data, none_lr, lr in (("trec", 1e-3, 2e-3), ("mr", 2e-3, 1e-3)):
        for own, best, value in ((NONE, none_lr, 80.0), (None, lr, 82.0)):
            for rate in (1e-3, 2e-3):
                fields: dict[str, Any] = {"overrides": {"lr": rate}, "recipe": {"epochs": 2, "lr": rate}}
                fields |= {"regularizer": own} if own else {}
                seeds = {MAX_SEEDS: 10.0, **({0: value, 1: value + 1} if rate == best else {})}
                trials = [make_trial(seed, data=data, **fields) for seed in seeds]
                store.record([both(*pair) for pair in zip(trials, seeds.values(), strict=True)])
                if rate == best:
                    chosen[trials[0].config_id] = ("set.lr",)
                else:
                    others.add(trials[0].config_id)

    def rows_of(old: str, new: str) -> tuple[list[tuple[Any, ...]], list[int]]:
        with reading(store.engine) as connection:
            words = [(connection, old.split()), (connection, new.split())]
            sides = read_sides(words, ["accuracy"], chosen=chosen, left_out=others)
        rows = compare(*sides)
        columns = "data", "old_mean", "new_mean", "pairs"
        values = [(*map(row.get, columns), row["old"].get("lr"), row["new"].get("lr")) for row in rows]
        return values, [side.left_out for side in sides]

    rows, left_out = rows_of("regularizer=none", "regularizer=dropkey")
    assert rows == [("mr", 80.5, 82.5, 2, 2e-3, 1e-3), ("trec", 80.5, 82.5, 2, 1e-3, 2e-3)]
    assert left_out == [4, 4]
    rows, left_out = rows_of("regularizer=none seed>=0", "regularizer=dropkey seed>=0")
    assert (len(rows), left_out) == (8, [0, 0])
    assert {row[1] for row in rows} == {None, 10.0, 80.5}  # never a mean over both kinds of seeds
