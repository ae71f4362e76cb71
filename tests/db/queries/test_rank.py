from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import friedmanchisquare, rankdata, wilcoxon

from dropbench.db.queries.blocks import BASELINE, Block
from dropbench.db.queries.rank import rank, rank_blocks
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import RegularizerSpec
from tests.db.records import done, make_trial

NAMES = ("none", "dropkey", "dropout")


def spec(name: str, ratio: float = 0.3) -> RegularizerSpec:
    return RegularizerSpec(name=name, params={} if name == "none" else {"ratio": ratio})


def record(store: Store, data: str, values: Iterable[tuple[str, float]]) -> None:
    seconds = ("test/seconds", -1, 1.0)
    store.record([done(make_trial(0, data=data, regularizer=spec(name)), value, seconds) for name, value in values])


def test_ranks_and_improvements(store: Store) -> None:
    blocks = {"trec": (80.0, 84.0, 82.0), "mr": (50.0, 50.0, 49.0), "cr": (40.0, 44.0, 38.0)}
    for data, values in blocks.items():
        record(store, data, zip(NAMES, values, strict=True))
    ranking = rank(store)
    rows = {row["regularizer"]: row for row in ranking.rows}
    assert [row["regularizer"] for row in ranking.rows] == ["dropkey", "none", "dropout"]
    assert rows["dropkey"]["rank"] == pytest.approx((1 + 1.5 + 1) / 3)
    assert [rows[name]["won"] for name in NAMES] == [1, 3, 0]
    assert rows["dropkey"]["improvement"] == pytest.approx((5.0 + 0.0 + 10.0) / 3)
    assert rows["dropout"]["improvement"] == pytest.approx((2.5 - 2.0 - 5.0) / 3)
    assert rows["dropkey"]["low"] < rows["dropkey"]["improvement"] < rows["dropkey"]["high"]
    assert rows["none"]["improvement"] is None
    assert (ranking.blocks, ranking.left_out, ranking.friedman) == (3, [], None)
    assert any("too little for Friedman's test: 3 regularizers in 3 blocks" in note for note in ranking.notes)


def test_a_lower_error_is_better(store: Store) -> None:
    fields: dict[str, Any] = {"task": "language-modelling", "data": "wikitext-2", "model": "gpt"}
    for name, value in zip(NAMES, (4.0, 3.0, 5.0), strict=True):
        metrics: list[Any] = [("test/loss", -1, value)]
        store.record([RunRecord(make_trial(0, regularizer=spec(name), **fields), "succeeded", metrics=metrics)])
    ranking = rank(store, metrics=["loss"])
    assert [(row["regularizer"], row["rank"]) for row in ranking.rows] == [
        ("dropkey", 1.0),
        ("none", 2.0),
        ("dropout", 3.0),
    ]
    assert [row["improvement"] for row in ranking.rows] == [25.0, None, -25.0]


def test_the_largest_part_without_gaps_is_ranked(store: Store) -> None:
    record(store, "trec", zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    record(store, "mr", zip(NAMES[:2], (1.0, 2.0), strict=True))
    record(store, "cr", [("dropout", 3.0)])
    ranking = rank(store)
    assert [(row["regularizer"], row["rank"]) for row in ranking.rows] == [("dropkey", 1.0), ("none", 2.0)]
    assert ranking.blocks == 2
    assert [(block["data"], block["reason"]) for block in ranking.left_out] == [("cr", "no result of dropkey, none")]
    assert ranking.left_out_regularizers == [{"regularizer": "dropout", "blocks": 2}]
    assert ranking.notes[:3] == [
        "the largest part without gaps: 2 of 3 regularizers in 2 of 3 blocks",
        "regularizers left out: dropout (2 of 3 blocks)",
        "1 of 3 blocks left out: no result of dropkey, none",
    ]
    selected = rank(store, ["not", "data=cr", "regularizer=none,dropkey"])
    assert (selected.blocks, selected.left_out, selected.left_out_regularizers) == (2, [], [])
    nothing = rank(store, ["data=mr", "regularizer=none"])
    assert "nothing to rank" in nothing.notes[-1]
    assert rank(store, ["data=trec", "regularizer!=none"]).rows[0]["improvement"] is None


def test_of_equally_large_parts_the_one_with_more_regularizers_and_the_baseline_is_ranked(store: Store) -> None:
    record(store, "trec", zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    for data in ("mr", "cr", "subj"):
        record(store, data, [("dropkey", 1.0), ("dropattention-c", 2.0)])
    assert rank(store, ["not", "data=subj"]).blocks == 2, "2 × 2 results instead of 3 × 1"
    record(store, "snli", zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    ranking = rank(store)
    assert (ranking.blocks, len(ranking.rows)) == (2, 3), "3 × 2 results instead of 2 × 3"
    assert {row["regularizer"] for row in rank(store, ["data=trec,mr", "not", "regularizer=dropout"]).rows} == {
        "none", "dropkey",
    }  # fmt: skip


def test_different_weights_are_not_pooled_silently(store: Store) -> None:
    for weights, shift in (("a", 0.0), ("b", 20.0)):
        fields: dict[str, Any] = {"weights": {"path": "model.pt", "digest": weights}}
        for name, value in zip(NAMES, (50.0, 60.0, 70.0), strict=True):
            store.record([done(make_trial(0, regularizer=spec(name), **fields), value + shift)])
    ranking = rank(store)
    assert ranking.blocks == 2
    assert not any("means over" in note for note in ranking.notes)


def test_versions_of_a_plug_in_are_ranked_separately(store: Store) -> None:
    """Those of a schedule, too; a single version of the task makes no blocks of its own."""
    store.record([done(make_trial(0, regularizer=spec("none"), plugins={"task t": "3" * 64}), 50.0)])
    for digest, value in (("1" * 64, 60.0), ("2" * 64, 70.0)):
        own = {"task t": "3" * 64, "regularizer dropkey": digest, "schedule mine": digest}
        store.record([done(make_trial(0, regularizer=spec("dropkey"), plugins=own, schedule="mine"), value)])
    ranking = rank(store)
    assert ranking.blocks == 1
    improvements = {row["result_versions"]: row["improvement"] for row in ranking.rows}
    assert improvements == {
        None: None,
        "regularizer dropkey 11111111, schedule mine 11111111": 20.0,
        "regularizer dropkey 22222222, schedule mine 22222222": 40.0,
    }


def test_only_what_has_a_direction_is_ranked(store: Store) -> None:
    record(store, "trec", zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    ranking = rank(store, metrics=["seconds"])
    assert [block["reason"] for block in ranking.left_out] == ["no direction is known for seconds"]
    assert {row["rank"] for row in ranking.rows} == {None}


def test_settings_are_averaged_or_split(store: Store) -> None:
    record(store, "trec", [("none", 80.0)])
    for ratio, values in ((0.1, (82.0, 84.0)), (0.3, (90.0,))):
        store.record(
            [done(make_trial(seed, regularizer=spec("dropkey", ratio)), value) for seed, value in enumerate(values)]
        )
    (first, _) = rank(store).rows
    assert first["improvement"] == pytest.approx(100 * ((83.0 + 90.0) / 2 - 80) / 80)
    split = rank(store, by=["ratio"]).rows
    assert [(row["regularizer"], row["ratio"], row["rank"]) for row in split] == [
        ("dropkey", 0.3, 1.0), ("dropkey", 0.1, 2.0), ("none", None, 3.0),
    ]  # fmt: skip
    with pytest.raises(InputError, match="did you mean ratio"):
        rank(store, by=["ratoi"])


VALUES = st.lists(st.lists(st.sampled_from([1.0, 2.0, 3.5, 3.5000001, 7.0]), min_size=4, max_size=4), max_size=12)


@given(VALUES)
def test_as_scipy_ranks(rows: list[list[float]]) -> None:
    names = [(name,) for name in ("a", "b", "c", BASELINE)]
    blocks = {}
    for n, row in enumerate(rows):
        block = Block("text-classification", f"{n}", "", "", "{}", "", "accuracy")
        blocks[block] = {name: [[value]] for name, value in zip(names, row, strict=True)}
    ranking = rank_blocks(blocks, [])
    ranks = [rankdata([-value for value in row]) for row in rows]
    by_name = {row["regularizer"]: row for row in ranking.rows}
    for position, (name,) in enumerate(names):
        if rows:
            assert by_name[name]["rank"] == pytest.approx(sum(row[position] for row in ranks) / len(ranks))
            assert by_name[name]["won"] == sum(row[position] == max(row) for row in rows)
    if ranking.friedman is not None:
        assert len(rows) >= 5
        assert ranking.friedman["p"] == pytest.approx(friedmanchisquare(*zip(*rows, strict=True)).pvalue)


def test_friedman_of_enough_blocks(store: Store) -> None:
    rng = random.Random(0)
    values = [{name: 80 + position + rng.random() for position, name in enumerate(NAMES)} for _ in range(6)]
    for n, block in enumerate(values):
        record(store, f"data-{n}", block.items())
    ranking = rank(store)
    assert ranking.friedman is not None
    assert ranking.friedman["p"] < 0.01
    assert "over 6 blocks" in ranking.notes[-1]
    assert [(row["regularizer"], row["groups"]) for row in ranking.rows] == [
        ("dropout", "a"), ("dropkey", "ab"), ("none", "b"),
    ]  # fmt: skip
    assert ranking.critical_difference == pytest.approx(2.343 * (3 * 4 / 36) ** 0.5, rel=1e-3)
    pairs = {(pair["first"], pair["second"]): pair for pair in ranking.pairs}
    scores = {name: [block[name] for block in values] for name in NAMES}
    exact = wilcoxon(scores["dropout"], scores["none"]).pvalue
    assert pairs["dropout", "none"]["p_wilcoxon_holm"] == pytest.approx(3 * exact)
    assert pairs["dropout", "none"]["p_nemenyi"] < 0.05 < pairs["dropkey", "none"]["p_nemenyi"]


def test_evidence_against_the_baseline(store: Store) -> None:
    """From the single runs, in percent of the baseline's mean of their block."""
    runs = {"none": (78.0, 80.0, 82.0), "dropkey": (82.0, 84.0, 86.0)}
    for data in ("trec", "mr", "cr"):
        for name, values in runs.items():
            store.record([done(make_trial(n, data=data, regularizer=spec(name)), v) for n, v in enumerate(values)])
    ranking = rank(store)
    dropkey, none = ranking.rows
    assert (dropkey["iqm"], none["iqm"]) == pytest.approx((5.0, 0.0))
    assert dropkey["iqm_low"] < 5.0 < dropkey["iqm_high"]
    assert dropkey["p_improvement"] == pytest.approx((9 - 0.5) / 9), "one of nine pairs of runs is equal"
    assert (none["p_improvement"], none["p_better"], none["p_holm"]) == (None, None, None)
    assert dropkey["p_better"] > 0.9
    profile = ranking.profiles
    assert [profile["improvement"][0], profile["improvement"][-1]] == pytest.approx([-2.5, 7.5])
    for name, values in runs.items():
        shares = [sum(100 * (v - 80) / 80 > x for v in values) / 3 for x in profile["improvement"]]
        assert profile[name][1:-1] == pytest.approx(shares[1:-1])
