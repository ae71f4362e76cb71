"""Correctness of code that is optimized for a million trials. `benchmarks.database.queue` measures its speed."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.queries.results import results
from dropbench.db.statistics.seeds import summarize
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.regularizers.spec import complete_spec
from dropbench.harness.trials.trial import Trial
from tests.db.records import done, make_trial
from tests.requests import named

MANY = 40_000
"""More than the number of parameters of a statement in SQLite."""


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30))
def test_a_summary_equals_exact_arithmetic(values: list[float]) -> None:
    summary = summarize(values)
    assert summary.mean == pytest.approx(statistics.fmean(values), rel=1e-15, abs=1e-300)
    assert summary.std == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-7)


@given(st.floats(-1e9, 1e9), st.integers(2, 50))
def test_equal_values_do_not_deviate(value: float, n: int) -> None:
    assert summarize([value] * n).std == 0


def test_small_deviations_from_a_large_mean() -> None:
    values = [1e9 + part for part in (0.001, 0.002, 0.004, 0.008)]
    assert summarize(values).std == pytest.approx(statistics.stdev(values), rel=1e-9)


def test_any_number_of_ids(store: Store) -> None:
    trials = [make_trial(seed) for seed in range(3)]
    store.enqueue(trials, [named("suite", *trials)])
    ids = [f"{number:012x}" for number in range(MANY)]
    ids[7:7], ids[MANY:] = [trials[0].id], [trials[1].id]
    existing = [trials[0].id, trials[1].id]
    assert [*store.states(ids)] == [*store.trials(ids)] == existing
    assert store.counts(ids)["queued"] == 2
    assert store.suites(ids) == {id: ["suite"] for id in existing}
    assert store.intend(ids, SubmissionRow("a" * 32, "local", "/", "here", 1)) == existing
    assert store.set_states(dict.fromkeys(ids, ("failed", None)), {"submitted"}) == existing
    assert [row["n"] for row in results(store, ids=ids)] == [0]
    store.record([RunRecord(trial, "succeeded", metrics=[("test/accuracy", -1, 1.0)]) for trial in trials])
    assert [row["n"] for row in results(store, ids=ids)] == [2]


def test_a_bulk_is_added_in_the_order_it_came(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropbench.db.store.store.BULK", 7)
    trials = [make_trial(seed, data=f"data-{seed % 3}") for seed in range(30)]
    requests = [named(suite, *trials) for suite in ("one", "two")]
    assert store.enqueue(trials, requests).added == [trial.id for trial in trials]
    enqueued = store.enqueue(reversed(trials), requests)
    assert (enqueued.added, enqueued.present) == ([], [trial.id for trial in reversed(trials)])
    assert store.suites([trials[9].id]) == {trials[9].id: ["one", "two"]}


def test_a_trial_of_two_suites_is_counted_once(store: Store) -> None:
    values = {0: 80.0, 1: 82.0}
    store.record([done(make_trial(seed), value) for seed, value in values.items()])
    store.add_requests(named(suite, *map(make_trial, values)) for suite in ("one", "two", "two"))
    (row,) = results(store, group_by=["regularizer"])
    assert (row["n"], row["mean"], row["std"]) == (2, 81.0, statistics.stdev(values.values()))
    assert [(row["suite"], row["n"]) for row in results(store, group_by=["suite"])] == [("one", 2), ("two", 2)]
    assert [(row["suite"], row["n"]) for row in results(store, ["two"], group_by=["suite"])] == [("two", 2)]
    assert [(row["seed"], row["n"]) for row in results(store, group_by=["seed"])] == [(0, 1), (1, 1)]
    both = results(store, group_by=["seed", "suite", "data"])
    assert [tuple(row.values())[:3] for row in both] == [
        (0, "one", "trec"), (0, "two", "trec"), (1, "one", "trec"), (1, "two", "trec"),
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["regularizer", "model", "lr", "window"])
def test_a_filter_that_leaves_all_changes_nothing(store: Store, key: str) -> None:
    """Without a filter, values are read from the index of final values; with a filter, through the trials."""
    specs = [complete_spec("dropkey", {"ratio": 0.1, "window": 1 + n % 2}) for n in range(4)]
    specs[0] = complete_spec("dropout", {"ratio": 0.1})
    trials = [
        make_trial(seed, regularizer=spec, model=f"model-{n % 3}", overrides={"lr": n % 2 + 0.5}, data=f"data-{n}")
        for n, spec in enumerate(specs)
        for seed in range(3)
    ]
    store.record(
        [
            RunRecord(
                trial, "succeeded" if n else "failed", None, [],
                [("train/loss", 1, 7.0), ("test/accuracy", -1, n / 7), ("test/f1", -1, None if n % 5 else n / 3)],
            )
            for n, trial in enumerate(trials)
        ]
    )  # fmt: skip
    store.add_requests([named("suite", *trials)])
    rows = results(store, group_by=[key], metrics=["all"])
    assert rows == results(store, ["suite=suite"], group_by=[key], metrics=["all"])
    assert rows == results(store, ids=[trial.id for trial in trials], group_by=[key], metrics=["all"])
    assert len(rows) > 2
    assert sum(row["n"] for row in rows if row["metric"] == "accuracy") == len(trials)
    means = {row[key]: row["mean"] for row in rows if row["metric"] == "accuracy"}
    for value, mean in means.items():
        assert mean == pytest.approx(
            statistics.fmean(n / 7 for n, trial in enumerate(trials) if key_of(trial, key) == value)
        )


def key_of(trial: Trial, key: str) -> Any:
    if key in ("lr", "window"):
        return {**trial.overrides, **trial.regularizer.params}.get(key)
    return trial.regularizer.name if key == "regularizer" else trial.model


def test_values_of_different_types_are_different_groups(store: Store) -> None:
    for value in (1, True, "1"):
        store.enqueue([make_trial(overrides={"x": value})])
    assert {repr(row["x"]) for row in results(store, group_by=["x"])} == {"1", "True", "'1'"}
