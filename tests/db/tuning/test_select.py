"""Which candidate a cell chooses, and which ones Optuna asks for: results are written down, nothing is trained."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.schema.connection import connect
from db.schema.tables import METADATA
from db.store.run_record import RunRecord
from db.store.store import Store
from db.tuning.candidates import PRUNED, Candidate, Selection
from db.tuning.select import Replayed, replay, select
from harness.errors import InputError
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.search_space import Sweep, parse_search, parse_space
from harness.suites.suite import parse_suite
from harness.trials.metric import Metric
from harness.trials.trial import Trial

SUITE: dict[str, Any] = {
    "title": "t",
    "source": "s",
    "metric": "accuracy",
    "trial": {"task": "tiny", "data": "tiny", "model": "tiny"},
    "columns": [{"label": "Tiny"}],
    "rows": [{"label": "dropkey", "trial": {"regularizer": "dropkey"}}],
    "presets": {"mini": {"seeds": 2}},
}
ACCURACY = Metric("accuracy")
HERE = Settings()
pytestmark = pytest.mark.usefixtures("tiny_task")


def cell(*space: str, search: str = "sampler=grid", seeds: int = 2) -> Cell:
    suite = parse_suite(SUITE, "mine", "mine.yaml")
    choice = SuiteOptions(sweep=parse_space(space), search=parse_search(search), seeds=tuple(range(seeds)))
    (found,) = suite.cells(choice)
    return found


def write(
    store: Store, trial: Trial, dev: float | None, test: float = 0.0, curve: Sequence[float] = (), **fields: Any
) -> None:
    points: list[tuple[str, int, float | None]] = [
        ("dev/accuracy", 10 * number, value) for number, value in enumerate(curve, 1)
    ]
    state = fields.pop("state", "succeeded")
    if state == "succeeded":
        points += [("dev/accuracy", -1, dev), ("test/accuracy", -1, test), ("dev/loss", -1, test)]
    store.record([RunRecord(trial, state, fields.pop("reason", None), [], [], points)])


def test_the_best_on_dev_is_chosen_whatever_test_says(store: Store) -> None:
    swept = cell("ratio=0.1,0.2,0.3")
    for one, dev, test in zip(swept.grid_cells(), (70.0, 80.0, 75.0), (99.0, 1.0, 98.0), strict=True):
        low, high = one.trials(HERE)
        write(store, low, dev - 5, test)
        write(store, high, dev + 5, test)
    selection = select(swept, HERE, store)
    assert selection.chosen is not None
    assert (selection.chosen.params, selection.chosen.dev, selection.chosen.n) == ({"ratio": 0.2}, 80.0, 2)
    assert selection.metric == ACCURACY
    (best, *_) = swept.grid_cells()
    for trial in best.trials(HERE):
        write(store, trial, 70.0, 1e6)  # what was not the best on dev is not, however good it is on test
    again = select(swept, HERE, store)
    assert again.chosen is not None
    assert again.chosen.params == {"ratio": 0.2}


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=5), st.randoms(use_true_random=False)
)
def test_no_test_score_changes_the_choice(scores: list[tuple[float, float]], draw: random.Random) -> None:
    engine = connect("sqlite://")
    METADATA.create_all(engine)
    with Store(engine) as store:
        swept = cell("ratio=" + ",".join(str(number / 100) for number in range(len(scores))), seeds=1)
        trials = [one.trials(HERE)[0] for one in swept.grid_cells()]
        first = [dev for dev, _ in scores].index(max(dev for dev, _ in scores))
        tests = [test for _, test in scores]
        for _ in range(3):
            for trial, (dev, _), test in zip(trials, scores, tests, strict=True):
                write(store, trial, dev, test)
            found = select(swept, HERE, store).chosen
            assert found is not None
            assert found.params["ratio"] == first / 100
            draw.shuffle(tests)


@given(st.lists(st.integers(0, 5), min_size=1), st.booleans())
def test_of_equals_the_first_is_chosen_in_either_direction(scores: list[int], higher: bool) -> None:
    swept = cell("ratio=0.1")
    made = tuple(Candidate({"number": number}, swept, (), "succeeded", dev=dev) for number, dev in enumerate(scores))
    found = Selection(Sweep(space={}), made, Metric("any", higher_is_better=higher)).chosen
    assert found is not None
    assert found.params["number"] == scores.index(max(scores) if higher else min(scores))


@pytest.mark.parametrize(
    ("states", "settled", "chosen"),
    [
        (["succeeded", "succeeded"], True, 1),
        (["succeeded", "running"], False, None),
        (["succeeded", "cancelled"], False, None),
        (["succeeded", "not run"], False, None),
        (["succeeded", "failed"], True, 0),
        (["succeeded", "pruned"], True, 0),
        (["failed", "pruned"], True, None),
    ],
)
def test_nothing_is_chosen_before_all_have_won_or_lost(states: list[str], settled: bool, chosen: int | None) -> None:
    made = tuple(
        Candidate({"number": number}, cell("ratio=0.1"), (), state, dev=50.0 + number)  # type: ignore[arg-type]
        for number, state in enumerate(states)
    )
    selection = Selection(Sweep(space={}), made, ACCURACY)
    assert selection.settled is settled
    assert (selection.chosen.params["number"] if selection.chosen else None) == chosen
    assert not Selection(Sweep(space={}), made, ACCURACY, remaining=1).settled


def test_the_state_of_a_candidate(store: Store) -> None:
    swept = cell("ratio=0.1,0.2,0.3,0.4,0.5,0.6,0.7")
    one, two, three, four, five, six, _ = [candidate.trials(HERE) for candidate in swept.grid_cells()]
    write(store, one[0], 60.0)
    write(store, one[1], None)
    write(store, two[0], 70.0)
    write(store, two[1], 0.0, state="failed", reason="no memory")
    write(store, three[0], 70.0)
    write(store, three[1], 0.0, state="cancelled", reason=f"{PRUNED}dev accuracy 3")
    write(store, four[0], 0.0, state="cancelled", reason=f"{PRUNED}dev accuracy 3")
    write(store, four[1], 0.0, state="running")
    write(store, five[0], 80.0)
    write(store, six[0], 80.0)
    write(store, six[1], 80.0)
    found = select(swept, HERE, store).candidates
    assert [(one.state, one.reason, one.dev, one.n) for one in found] == [
        ("failed", "a run gave no finite dev score", 60.0, 1),
        ("failed", "no memory", 70.0, 1),
        ("pruned", "dev accuracy 3", 70.0, 1),
        ("running", None, None, 0),
        ("not run", None, 80.0, 1),
        ("succeeded", None, 80.0, 2),
        ("not run", None, None, 0),
    ]


def fulfil(store: Store, swept: Cell, score: Callable[[Candidate], float], draw: random.Random) -> list[Replayed]:
    """Give every candidate a dev score, as they are asked for, the open ones in any order; what each look found."""
    looks = []
    while True:
        looks.append(replay(swept, HERE, store))
        still = [one for one in looks[-1].selection.candidates if not one.settled]
        if not still:
            return looks
        trials = [(one, trial) for one in still for trial in one.trials]
        draw.shuffle(trials)
        for one, trial in trials:
            if draw.random() < 0.1:
                looks.append(replay(swept, HERE, store))
            write(store, trial, score(one) + trial.seed)


def near(one: Candidate) -> float:
    return 100 - 100 * abs(float(one.params["ratio"]) - 0.2) - abs(int(one.params["window"]) - 3)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_same_results_ask_for_the_same_candidates(store: Store, sampler: str) -> None:
    swept = cell("ratio=0.0..0.5", "window=1..8", search=f"sampler={sampler},candidates=18,batch=5,seed=3")
    looks = fulfil(store, swept, near, random.Random(0))
    asked = [[one.params for one in look.selection.candidates] for look in looks]
    assert all(short == asked[-1][: len(short)] for short in asked), "nothing that was asked for is taken back"
    assert [len(asked[0]), len(asked[-1])] == [5 if sampler == "tpe" else 18, 18]
    assert [looks[0].selection.remaining, looks[-1].selection.remaining] == [13 if sampler == "tpe" else 0, 0]
    assert [one.params for one in replay(swept, HERE, store).selection.candidates] == asked[-1]
    chosen = looks[-1].selection.chosen
    assert chosen is not None
    assert chosen.dev == max(one.dev or 0.0 for one in looks[-1].selection.candidates)
    ratios = [float(params["ratio"]) for params in asked[-1]]
    assert all(0 <= ratio <= 0.5 and ratio == float(f"{ratio:.4g}") for ratio in ratios)
    other = cell("ratio=0.0..0.5", "window=1..8", search=f"sampler={sampler},candidates=18,batch=5,seed=4")
    assert [one.params for one in replay(other, HERE, store).selection.candidates][:5] != asked[-1][:5]


def test_tpe_learns_of_what_it_is_told(store: Store) -> None:
    search = "sampler=tpe,candidates=24,batch=4"
    good = fulfil(store, cell("ratio=0.0..0.5", "window=1..8", search=search, seeds=1), near, random.Random(0))
    scores = [near(one) for one in good[-1].selection.candidates]
    assert sum(scores[12:]) / len(scores[12:]) > sum(scores[:12]) / 12


def test_equal_candidates_are_one(store: Store) -> None:
    swept = cell("window=1,2", search="sampler=random,candidates=9", seeds=1)
    (*_, last) = fulfil(store, swept, lambda one: float(one.params["window"]), random.Random(0))
    assert [one.params for one in last.selection.candidates] in (
        [{"window": 1}, {"window": 2}],
        [{"window": 2}, {"window": 1}],
    )
    assert last.selection.chosen is not None
    assert last.selection.chosen.params == {"window": 2}


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
@pytest.mark.parametrize("sampler", ["grid", "tpe,candidates=13,batch=13"])
def test_what_lies_behind_is_given_up(store: Store, pruner: str, sampler: str) -> None:
    swept = cell("set.lr=1..13", search=f"sampler={sampler},pruner={pruner}", seeds=1)
    first = replay(swept, HERE, store).selection.candidates
    bad, good, done = first[-4:], first[-5], first[:-5]
    fine, poor = [90.0 + step for step in range(9)], [10.0] * 9
    for number, one in enumerate(done):
        curve = [40.0 + number + step for step in range(9)]
        write(store, one.trials[0], curve[-1], curve=curve)
    for one, curve in [(good, fine), *((one, poor) for one in bad)]:
        write(store, one.trials[0], None, state="running", curve=curve)
    found = {one.trials[0].id: reason for one, reason in replay(swept, HERE, store).to_prune}
    assert set(found) <= {one.trials[0].id for one in bad}
    assert len(found) == 4 if pruner == "median" else found, "a bracket of Hyperband prunes nothing"
    assert set(found.values()) == {f"dev accuracy 10 after 9 evaluations, {pruner} pruner"}
    write(store, good.trials[0], 99.0, curve=fine)
    for one in bad:
        reason = PRUNED + found.get(one.trials[0].id, "by another")
        write(store, one.trials[0], None, state="cancelled", reason=reason, curve=poor)
    last = replay(swept, HERE, store)
    assert not last.to_prune
    assert [one.state for one in last.selection.candidates].count("pruned") == 4
    assert last.selection.chosen is not None
    assert last.selection.chosen.params == good.params


def test_without_optuna_a_line_says_how_to_install_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert select(cell("ratio=0.1"), HERE, store).candidates
    with pytest.raises(InputError, match=r"sampler=tpe, pruner=none: .* `pip install 'dropbench\[sweep\]'`"):
        select(cell("ratio=0.1", search="sampler=tpe,candidates=2"), HERE, store)
