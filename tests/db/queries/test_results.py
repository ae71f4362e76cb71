from __future__ import annotations

import statistics
from typing import Any

import pytest

from dropbench.db.queries.results import curves, final_values, results
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.settings import MAX_SEEDS
from dropbench.harness.trials.trial import Trial
from tests.db.records import make_trial
from tests.requests import named

KEYS = {
    "suite", "task", "data", "model", "regularizer", "params", "schedule", "align", "metric", "mean", "std", "n",
    "published", "mark", "state",
}  # fmt: skip
TABLE3 = "dropattention/table3"


def succeeded(trial: Trial, **metrics: float | None) -> RunRecord:
    finals: list[tuple[str, int, float | None]] = [
        (name.replace("_", "/"), -1, value) for name, value in metrics.items()
    ]
    return RunRecord(trial, "succeeded", None, [], [*finals, ("test/accuracy", 7, 0.0)])


def column(ratio: float, window: int, rescale: str = "renormalize") -> RegularizerSpec:
    params = {"ratio": ratio, "window": window, "unit": "column", "rescale": rescale}
    return RegularizerSpec(name="dropattention-c", params=params)


@pytest.fixture
def filled(store: Store) -> Store:
    none = RegularizerSpec(name="none")
    values = {0: 80.0, 1: 82.5, 2: 84.0}
    of_table = [
        *(succeeded(make_trial(seed, regularizer=none), test_accuracy=value, dev_accuracy=value + 1)
          for seed, value in values.items()),
        succeeded(make_trial(0, regularizer=column(0.3, 1)), test_accuracy=90.0),
        RunRecord(make_trial(1, regularizer=column(0.3, 1)), "failed", "boom"),
        RunRecord(make_trial(0, regularizer=column(0.3, 2)), "queued"),
    ]  # fmt: skip
    store.record([*of_table, succeeded(make_trial(0, data="mr", overrides={"lr": 0.1}), test_accuracy=None)])
    table, mine = (record.trial for record in of_table), of_table[3].trial
    store.add_requests([named(TABLE3, *table, published=88.4), named("mine", mine)])
    return store


def test_one_row_a_suite_configuration_and_metric(filled: Store) -> None:
    rows = results(filled)
    assert all(set(row) >= KEYS for row in rows)
    by_key = {(row["suite"], row["regularizer"], row["params"].get("window"), row["metric"]): row for row in rows}
    assert len(by_key) == len(rows) == 5
    none = by_key[TABLE3, "none", None, "accuracy"]
    assert none["mean"] == statistics.fmean([80.0, 82.5, 84.0])
    assert none["std"] == statistics.stdev([80.0, 82.5, 84.0])
    assert (none["n"], none["state"], none["published"]) == (3, "succeeded", 88.4)
    partial = by_key[TABLE3, "dropattention-c", 1, "accuracy"]
    assert (partial["mean"], partial["std"], partial["n"], partial["state"]) == (90.0, None, 1, "failed")
    assert partial["published"] == 88.4
    other = by_key["mine", "dropattention-c", 1, "accuracy"]
    assert (other["n"], other["state"], other["published"]) == (1, "succeeded", None)
    waiting = by_key[TABLE3, "dropattention-c", 2, "accuracy"]
    assert (waiting["mean"], waiting["n"], waiting["state"], waiting["published"]) == (None, 0, "queued", 88.4)
    diverged = by_key[None, "dropkey", 1, "accuracy"]
    assert (diverged["mean"], diverged["n"], diverged["state"], diverged["overrides"]) == (
        None,
        0,
        "succeeded",
        {"lr": 0.1},
    )


def test_a_filter_names_the_suite_that_is_shown(filled: Store) -> None:
    assert [row["suite"] for row in results(filled, ["mine"])] == ["mine"]
    assert {row["suite"] for row in results(filled, ["data=trec", f"suite={TABLE3}"])} == {TABLE3}
    assert len(results(filled, ["data=mr"])) == 1
    assert results(filled, ["data=cr"]) == []


def test_metrics(filled: Store) -> None:
    both = results(filled, ["regularizer=none"], metrics=["all"])
    assert [row["metric"] for row in both] == ["accuracy", "dev/accuracy"]
    assert both[1]["mean"] == both[0]["mean"] + 1
    assert both[1]["published"] is None
    assert [row["metric"] for row in results(filled, ["regularizer=none"], metrics=["dev/accuracy"])] == [
        "dev/accuracy"
    ]
    with pytest.raises(InputError, match="unknown metric 'acuracy': did you mean accuracy"):
        results(filled, metrics=["acuracy"])


def test_what_lacks_the_metric_that_was_asked_for_says_so_under_its_name(filled: Store) -> None:
    rows = results(filled, metrics=["dev/accuracy"])
    counts = {row["n"] for row in rows if row["regularizer"] == "none" and row["suite"] == TABLE3}
    assert {row["metric"] for row in rows} == {"dev/accuracy"}
    assert counts == {3}
    assert {row["n"] for row in rows if row["regularizer"] != "none"} == {0}


def test_group_by(filled: Store) -> None:
    rows = results(filled, [TABLE3], group_by=["regularizer", "window"])
    assert [(row["regularizer"], row["window"], row["n"], row["state"]) for row in rows] == [
        ("dropattention-c", 1, 1, "failed"), ("dropattention-c", 2, 0, "queued"), ("none", None, 3, "succeeded"),
    ]  # fmt: skip
    assert set(rows[0]) == {"regularizer", "window", "metric", "mean", "std", "n", "pooled", "mark", "state"}
    rows = results(filled, [TABLE3], group_by=["seed"])
    assert [(row["seed"], row["mean"], row["n"]) for row in rows] == [(0, 85.0, 2), (1, 82.5, 1), (2, 84.0, 1)]
    assert results(filled, group_by=["lr"])[1]["lr"] == 0.1
    with pytest.raises(InputError, match="unknown key to group by 'windw': did you mean window"):
        results(filled, group_by=["windw"])
    with pytest.raises(InputError, match="expected the name of one of its keys"):
        results(filled, group_by=["params"])


def test_pooled_configurations_are_counted(filled: Store) -> None:
    """Four values of two configurations are not four seeds."""
    assert all("pooled" not in row for row in results(filled))
    one = results(filled, [TABLE3], group_by=["regularizer", "window"])
    assert {row["pooled"] for row in one} == {None}
    rows = results(filled, [TABLE3], group_by=["data"])
    assert [(row["n"], row["pooled"]) for row in rows] == [(4, "2 configurations × 1–3 seeds")]
    rows = results(filled, [TABLE3], group_by=["seed"])
    assert [row["pooled"] for row in rows] == ["2 configurations × 1 seed", None, None]
    assert [row["pooled"] for row in results(filled, [TABLE3], group_by=["suite"])] == ["2 configurations × 1–3 seeds"]
    points = curves(filled, [TABLE3], "test/accuracy", group_by=["data"])
    assert [(row["step"], row["n"], row["pooled"]) for row in points] == [(7, 4, "2 configurations × 1–3 seeds")]
    assert "pooled" not in curves(filled, [TABLE3], "test/accuracy")[0]


def test_published_is_that_of_the_newest_request_with_a_value(store: Store) -> None:
    real, synthetic, other = make_trial(), make_trial(data="trec-synthetic"), make_trial(1, schedule="decreasing")
    requests = [
        named(TABLE3, real, synthetic, published=(88.4, 0.1)).model_copy(update={"created_at": "2026-01-02"}),
        named(TABLE3, real, published=55.5).model_copy(update={"created_at": "2026-01-01"}),
        named("mine", real, other).model_copy(update={"created_at": "2026-01-03"}),
    ]
    for trial in (real, synthetic, other):
        store.record([succeeded(trial, test_accuracy=1.0, dev_accuracy=2.0)])
    store.add_requests(requests)
    values = {(row["suite"], row["data"], row["schedule"]): row["published"] for row in results(store)}
    assert values == {
        (TABLE3, "trec", "constant"): 88.4,
        (TABLE3, "trec-synthetic", "constant"): None,  # no source measured on generated data
        ("mine", "trec", "constant"): None,
        ("mine", "trec", "decreasing"): None,
    }
    assert {row["published"] for row in results(store, metrics=["dev/accuracy"])} == {None}


def test_final_values(filled: Store) -> None:
    done, diverged = make_trial(0, regularizer=column(0.3, 1)), make_trial(0, data="mr", overrides={"lr": 0.1})
    waiting = make_trial(0, regularizer=column(0.3, 2))
    ids = [done.id, diverged.id, waiting.id, done.id]
    assert final_values(filled, ids, "accuracy") == {done.id: 90.0, diverged.id: None}
    assert final_values(filled, ids, "dev/accuracy") == {}


def test_ids_alone(filled: Store) -> None:
    (row,) = results(filled, ids=[make_trial(0, data="mr", overrides={"lr": 0.1}).id])
    assert row["data"] == "mr"
    assert results(filled, ids=[]) == []


def test_an_empty_database(store: Store) -> None:
    empty: list[dict[str, Any]] = []
    assert results(store) == results(store, metrics=["accuracy"], group_by=["data"]) == empty


def test_seeds_that_only_choose_candidates_are_never_averaged_with_those_of_a_table(store: Store) -> None:
    for seed, value in ((0, 80.0), (1, 82.0), (MAX_SEEDS, 10.0)):
        store.record([succeeded(make_trial(seed), test_accuracy=value, dev_accuracy=value)])
    for options in ({}, {"group_by": ["regularizer"]}):
        rows = results(store, metrics=["accuracy"], **options)
        assert {(row["seeds"], row["mean"], row["n"]) for row in rows} == {(None, 81.0, 2), ("tuning", 10.0, 1)}
