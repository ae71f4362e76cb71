"""The words of filters: the trials that they match, and invalid words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, open_store
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import RegularizerSpec
from tests.db.records import make_trial
from tests.requests import named

RATIOS = (0.05, 0.1, 0.3, 1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    file: Path = tmp_path_factory.mktemp("filters") / "some.db"
    with open_store(f"sqlite:///{file}") as store:
        store.record(records := run_records())
        for record in records:
            store.add_requests([named(f"tables/{record.trial.seed % 2}", record.trial)])
        yield store


def run_records() -> list[RunRecord]:
    """Seeds 0 to 3 with as many ratios; 80.5 to 83.5; the last diverged; one without a regularizer waits."""
    records = []
    for seed, ratio in enumerate(RATIOS):
        value = None if seed == 3 else 80.5 + seed
        metrics: list[Any] = [("test/accuracy", -1, value), ("dev/accuracy", -1, 90.0 - seed), ("train/loss", 5, 7.0)]
        trial = make_trial(seed, ratio=ratio, model=f"t2t-{seed}", overrides={"amp": seed > 1, "name": f"x{seed}"})
        records.append(RunRecord(trial, "succeeded", None, [], metrics))
    waits = make_trial(10, model="volo", regularizer=RegularizerSpec(name="none"))
    return [*records, RunRecord(waits, "queued")]


def seeds(store: Store, words: str) -> list[int]:
    rows = store.states(store.find(words))
    return sorted(row.seed for row in rows.values())


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        ("", [0, 1, 2, 3, 10]),
        ("queued", [10]),
        ("not queued", [0, 1, 2, 3]),
        ("not not queued", [10]),
        ("not queued not tables/0", [1, 3]),
        ("state!=queued", [0, 1, 2, 3]),
        ("state~q*", [10]),
        ("state=failed,queued", [10]),
        ("tables/0 seed=0,1,2", [0, 2]),
        ("seed<2", [0, 1]),
        ("seed<=1.5", [0, 1]),
        ("seed>9", [10]),
        ("seed=1,3", [1, 3]),
        ("seed=1.5", []),
        ("seed!=1,3", [0, 2, 10]),
        ("ratio<0.3", [0, 1]),
        ("ratio<=0.30", [0, 1, 2]),
        ("ratio>0.1", [2, 3]),
        ("ratio>=1.0", [3]),
        ("not ratio<0.3", [2, 3, 10]),
        ("ratio!=0.3", [0, 1, 3, 10]),
        ("ratio~0.*", [0, 1, 2]),
        ("ratio=.30,1.0 window=1", [2, 3]),
        ("model~t2t*", [0, 1, 2, 3]),
        ("model~t2t-[13]", [1, 3]),
        ("not model~t2t*", [10]),
        ("suite~tables/*", [0, 1, 2, 3, 10]),
        ("suite!=tables/0", [1, 3]),
        ("suite=tables/1,tables/7", [1, 3]),
        ("amp=true", [2, 3]),
        ("amp=false", [0, 1]),
        ("amp=1", []),
        ("amp~t*", [2, 3]),
        ("amp>0", []),
        ("name>0", []),
        ("name=x1", [1]),
        ("regularizer=none", [10]),
        ("name~x?", [0, 1, 2, 3]),
        ("accuracy>=81.5", [1, 2]),
        ("accuracy=80.5,82.5", [0, 2]),
        ("accuracy!=80.5", [1, 2, 3, 10]),
        ("test/accuracy<82", [0, 1]),
        ("dev/accuracy>88", [0, 1]),
        ("dev/accuracy>88 ratio<0.1 succeeded", [0]),
        ("not accuracy>0", [3, 10]),
        ("data=trec,mr", [0, 1, 2, 3, 10]),
        ("data!=trec", []),
        ("quickstart", []),
        ("not quickstart", [0, 1, 2, 3, 10]),
    ],
)
def test_matching_trials(filled: Store, words: str, selected: list[int]) -> None:
    assert seeds(filled, words) == selected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("quued", "did you mean queued"),
        ("quickstrat", "did you mean quickstart"),
        ("%", "unknown state, suite or trial id '%'"),
        ("data=x' or 1=1 --", "unknown state, suite or trial id 'or'"),
        ("not", "filter 'not': expected a word after it"),
        ("queued not", "expected a word after it"),
        ("ratoi<1", "did you mean ratio"),
        ("acuracy>1", "did you mean accuracy"),
        ("dev/acuracy>1", "did you mean dev/accuracy"),
        ("train/loss>1", "unknown key of a filter 'train/loss'"),  # a curve, which has no final value
        ("ratio<x", "filter 'ratio<x': 'x' is not a number: expected one after '<'"),
        ("ratio<", "'' is not a number"),
        ("ratio<0.1,0.2", "'0.1,0.2' is not a number"),
        ("seed=one", "'one' is not a number"),
        ("accuracy>nan", "'nan' is not a number"),
        ("accuracy<1e999", "'1e999' is not a number"),
        ("accuracy~8*", "accuracy is a number: expected =, !=, <, <=, > or >="),
        ("model<3", "'<' compares numbers: expected =, != or ~ after model"),
        ("state>queued", "'>' compares numbers"),
        ("suite<x", "'<' compares numbers"),
        ("state=quued", "did you mean queued"),
        ("data=", "filter 'data=': expected a value after '='"),
        ("data=,", "expected a value"),
        ("model~", "expected a pattern after '~'"),
        ("=3", "unknown key of a filter ''"),
    ],
)
def test_invalid_words(filled: Store, words: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        filled.find(words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


KEYS = (
    *("seed", "ratio", "window", "amp", "name", "model"),
    *("state", "suite", "accuracy", "dev/accuracy", "data", "nothing"),
)
VALUES = st.one_of(
    st.integers(-5, 12).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from(["0.1", "0.3,1", "true", "x1", "t2t*", "queued", "tables/0", "trec", "[", "*"]),
)
WORDS = st.builds(
    "{}{}{}".format, st.sampled_from(KEYS), st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"]), VALUES
)


@given(st.one_of(WORDS, st.text(max_size=20), st.sampled_from(["not", "failed", "0", "f" * 13])))
def test_any_word_is_answered_or_refused(filled: Store, word: str) -> None:
    """A word and its negation together match every trial once."""
    try:
        selected = seeds(filled, word)
    except InputError:
        return
    if word.split() == [word]:
        assert sorted(selected + seeds(filled, f"not {word}")) == [0, 1, 2, 3, 10]


@given(st.sampled_from([("seed", (0, 1, 2, 3, 10)), ("ratio", RATIOS), ("accuracy", (80.5, 81.5, 82.5))]), st.data())
def test_numbers_compare_as_numbers(filled: Store, of: tuple[str, tuple[float, ...]], data: st.DataObject) -> None:
    key, held = of
    limit = data.draw(st.one_of(st.sampled_from(held), st.floats(-1e6, 1e6)))
    for comparison, selected in (
        ("<", [value < limit for value in held]),
        ("<=", [value <= limit for value in held]),
        (">", [value > limit for value in held]),
        (">=", [value >= limit for value in held]),
        ("=", [value == limit for value in held]),
    ):
        assert len(seeds(filled, f"{key}{comparison}{limit!r}")) == sum(selected)


def test_the_suites_that_are_shown_are_those_that_were_not_excluded(filled: Store) -> None:
    from dropbench.db.queries.results import results

    assert {row["suite"] for row in results(filled, ["suite~*/1"])} == {"tables/1"}
    assert {row["suite"] for row in results(filled, ["not", "tables/1"])} == {"tables/0"}
    assert {row["suite"] for row in results(filled, ["suite!=tables/1"])} == {"tables/0"}


@pytest.fixture
def composed(store: Store) -> Store:
    """Seed 0: dropkey; seeds 1 and 2: compositions with it; seed 3: another regularizer."""
    specs = [
        RegularizerSpec(name="dropkey", params={"ratio": 0.3}),
        RegularizerSpec(name="drophead+dropkey", params={"drophead.ratio": 0.1, "dropkey.ratio": 0.3}),
        RegularizerSpec(name="layerdrop+dropkey", params={"layerdrop.ratio": 0.3, "dropkey.ratio": 0.2}),
        RegularizerSpec(name="dropout", params={"ratio": 0.3}),
    ]
    store.record([RunRecord(make_trial(seed, regularizer=spec), "queued") for seed, spec in enumerate(specs)])
    return store


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        ("regularizer~drophead", [1]),
        ("regularizer~dropkey", [0, 1, 2]),
        ("regularizer~drop*", [0, 1, 2, 3]),
        ("not regularizer~dropkey", [3]),
        ("regularizer~*+*", [1, 2]),
        ("regularizer=dropkey", [0]),
        ("regularizer=drophead+dropkey", [1]),
        ("regularizer=dropkey+drophead,dropout", [1, 3]),
        ("regularizer!=dropkey+drophead", [0, 2, 3]),
        ("dropkey.ratio=0.3", [0, 1]),
        ("dropkey.ratio<0.3", [2]),
        ("ratio=0.3", [0, 3]),
        ("layerdrop.ratio=0.3", [2]),
    ],
)
def test_parts_of_compositions_match(composed: Store, words: str, selected: list[int]) -> None:
    assert sorted(row.seed for row in composed.states(composed.find(words)).values()) == selected
