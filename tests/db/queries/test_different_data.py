"""Data sets of one name and different content are never averaged together, and their rows never look alike."""

from __future__ import annotations

from itertools import product

import pytest

from dropbench.db.queries.compare import compare
from dropbench.db.queries.results import results
from dropbench.db.queries.sides import read_sides
from dropbench.db.report.formats.comparison_tables import comparison_table
from dropbench.db.report.formats.listing import results_table
from dropbench.db.schema.connection import reading
from dropbench.db.store.store import Store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.trials.trial import DataRef
from tests.db.records import done, make_trial

FIRST, SECOND = "a1" * 8, "b2" * 8
VALUES = {("trec", FIRST): 80.0, ("trec", SECOND): 90.0, ("mr", FIRST): 50.0}
NONE = RegularizerSpec(name="none")


@pytest.fixture
def filled(store: Store) -> Store:
    for (name, fingerprint), value in VALUES.items():
        data = DataRef(name=name, fingerprint=fingerprint)
        for seed, regularizer in product(range(2), (NONE, RegularizerSpec(name="dropkey", params={"ratio": 0.3}))):
            store.record([done(make_trial(seed, regularizer=regularizer).model_copy(update={"data": data}), value)])
    return store


def test_a_table_shows_fingerprints_where_rows_would_look_alike(filled: Store) -> None:
    table = results_table(results(filled))
    column = table.header.index("fingerprint")
    assert {texts[column] for texts in table.texts} == {FIRST, SECOND}
    assert "fingerprint" not in str(results_table(results(filled, [f"fingerprint={FIRST}"])))
    assert {row["fingerprint"] for row in results(filled)} == {FIRST, SECOND}


def test_a_filter_selects_by_fingerprint(filled: Store) -> None:
    for words, values in (
        ("fingerprint=b2b2", {90.0}),
        (f"fingerprint={SECOND},a1", {80.0, 90.0, 50.0}),
        ("fingerprint!=a1", {90.0}),
        ("fingerprint~b*", {90.0}),
        ("data=trec not fingerprint=b2", {80.0}),
    ):
        assert {row["mean"] for row in results(filled, words.split())} == values, words


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
