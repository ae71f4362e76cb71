"""Data sets of one name and different content are never averaged together, and their rows never look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.queries.compare import compare, read_sides
from dropbench.db.queries.results import curves, results
from dropbench.db.report.formats.comparison_tables import comparison_table
from dropbench.db.report.formats.listing import results_table
from dropbench.db.schema.connection import reading
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, open_store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.trials.trial import DataRef, Trial
from tests.requests import named

Make = Callable[..., Trial]
FIRST, SECOND = "a1" * 8, "b2" * 8
VALUES = {("trec", FIRST): 80.0, ("trec", SECOND): 90.0, ("mr", FIRST): 50.0}
NONE = RegularizerSpec(name="none")


def fill(store: Store, make_trial: Make) -> Store:
    for (name, fingerprint), value in VALUES.items():
        data = DataRef(name=name, fingerprint=fingerprint)
        for seed in range(2):
            for regularizer, gain in ((NONE, 0.0), (RegularizerSpec(name="dropkey", params={"ratio": 0.3}), 2.0)):
                trial = make_trial(seed, regularizer=regularizer).model_copy(update={"data": data})
                metrics: list[Any] = [("test/accuracy", -1, value + gain), ("train/loss", 0, value + gain)]
                store.record([RunRecord(trial, "succeeded", None, [], metrics)])
                store.add_requests([named("mine", trial)])
    return store


@pytest.fixture
def filled(store: Store, make_trial: Make) -> Store:
    return fill(store, make_trial)


@pytest.fixture(scope="module")
def shared(make_trial: Make) -> Store:
    return fill(open_store("sqlite://"), make_trial)


KEYS = st.lists(st.sampled_from(["data", "regularizer", "ratio", "suite", "seed", "task", "fingerprint"]), unique=True)


@given(group_by=KEYS)
def test_no_group_has_two_fingerprints_of_a_data_set(shared: Store, group_by: list[str]) -> None:
    """Values of the first are 80 and 82, of the second 90 and 92: any mean in between is of both."""
    for rows in (results(shared, group_by=group_by), curves(shared, (), "train/loss", group_by=group_by)):
        assert rows
        for row in rows:
            assert min(abs(row["mean"] - value - 1) for value in VALUES.values()) <= 1
    (row,) = results(shared, ["data=mr"], group_by=["task"])
    assert set(row) == {"task", "metric", "mean", "std", "n", "state", "pooled", "mark"}


def test_a_table_shows_fingerprints_where_rows_would_look_alike(filled: Store) -> None:
    table = results_table(results(filled))
    column = table.header.index("fingerprint")
    assert {texts[column] for texts in table.texts} == {FIRST, SECOND}
    assert "fingerprint" not in str(results_table(results(filled, [f"fingerprint={FIRST}"])))
    assert {row["fingerprint"] for row in results(filled)} == {FIRST, SECOND}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["fingerprint=b2b2"], {90.0}),
        ([f"fingerprint={SECOND},a1"], {80.0, 90.0, 50.0}),
        (["fingerprint!=a1"], {90.0}),
        (["fingerprint~b*"], {90.0}),
        (["data=trec", "not", "fingerprint=b2"], {80.0}),
    ],
)
def test_a_filter_selects_by_fingerprint(filled: Store, words: list[str], values: set[float]) -> None:
    assert {row["mean"] for row in results(filled, ["regularizer=none", *words])} == values


def test_compare_names_other_data_next_to_another_difference(filled: Store) -> None:
    sides = f"data=trec regularizer=none fingerprint={FIRST}", f"data=trec regularizer=dropkey fingerprint={SECOND}"
    with reading(filled.engine) as connection:
        rows = compare(*read_sides([(connection, side.split()) for side in sides]))
        across = compare(*read_sides([(connection, ["data=trec"]), (connection, ["data=trec"])]))
        one_sided = compare(*read_sides([(connection, ["data=trec"]), (connection, [f"fingerprint={SECOND}"])]))
        names = compare(*read_sides([(connection, ["data=mr"]), (connection, ["data=trec"])]))
    (row,) = (row for row in rows if row["metric"] == "accuracy")
    assert (row["old"]["fingerprint"], row["new"]["fingerprint"], row["fingerprint"]) == (FIRST, SECOND, None)
    assert FIRST in str(comparison_table([row]))
    assert {row["change"] for row in across if row["metric"]} == {0.0}
    assert len([line for line in comparison_table(one_sided).below if f"trec {FIRST}" in line]) == 2
    assert all("fingerprint" not in row["old"] for row in names if row["fingerprint"] is None)
