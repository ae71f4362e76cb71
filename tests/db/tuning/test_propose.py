"""The candidates of stages and of Optuna: results are recorded without any training."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from dropbench.db.store.store import Store
from dropbench.db.tuning.select import PRUNED, Candidate, Selection
from dropbench.harness.errors import missing_library
from dropbench.harness.suites.request import RequestedCell
from tests.db.tuning.cells import HERE, TRIALS, cell, select, write

pytestmark = pytest.mark.usefixtures("tiny_task")


def fulfil(
    store: Store, swept: RequestedCell, score: Callable[[Candidate], float], draw: random.Random
) -> list[Selection]:
    """Give every requested candidate a dev score, in any order within a batch; return each replayed state."""
    replays = []
    while True:
        replays.append(select(swept, HERE, store))
        unsettled = [candidate for candidate in replays[-1].candidates if not candidate.settled]
        if not unsettled:
            return replays
        trials = [(candidate, trial) for candidate in unsettled for trial in map(TRIALS.__getitem__, candidate.ids)]
        draw.shuffle(trials)
        for candidate, trial in trials:
            if draw.random() < 0.1:
                replays.append(select(swept, HERE, store))
            write(store, trial, score(candidate) + trial.seed)


def near(candidate: Candidate) -> float:
    return 100 - 100 * abs(float(candidate.params["ratio"]) - 0.2) - abs(int(candidate.params["window"]) - 3)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_same_results_ask_for_the_same_candidates(store: Store, sampler: str) -> None:
    swept = cell("ratio=0.0..0.5", "window=1..8", search=f"sampler={sampler},candidates=18,batch=5,seed=3")
    replays = fulfil(store, swept, near, random.Random(0))
    requested = [[candidate.params for candidate in replayed.candidates] for replayed in replays]
    assert all(short == requested[-1][: len(short)] for short in requested), "nothing that was asked for is taken back"
    assert [len(requested[0]), len(requested[-1])] == [5 if sampler == "tpe" else 18, 18]
    assert [replays[0].remaining, replays[-1].remaining] == [13 if sampler == "tpe" else 0, 0]
    assert [candidate.params for candidate in select(swept, HERE, store).candidates] == requested[-1]
    chosen = replays[-1].chosen
    assert chosen is not None
    assert chosen.dev == max(candidate.dev or 0.0 for candidate in replays[-1].candidates)
    ratios = [float(params["ratio"]) for params in requested[-1]]
    assert all(0 <= ratio <= 0.5 and ratio == float(f"{ratio:.4g}") for ratio in ratios)
    other = cell("ratio=0.0..0.5", "window=1..8", search=f"sampler={sampler},candidates=18,batch=5,seed=4")
    assert [candidate.params for candidate in select(other, HERE, store).candidates][:5] != requested[-1][:5]


def test_a_stage_begins_with_the_best_of_the_one_before(store: Store) -> None:
    swept = cell("window=1,2,3", "ratio=0.1,0.2,0.3", search="sampler=staged")
    first, *_, last = fulfil(store, swept, near, random.Random(0))
    assert [candidate.params["window"] for candidate in first.candidates] == [1, 2, 3]
    (default,) = {candidate.params["ratio"] for candidate in first.candidates}
    assert (default, first.remaining) == (0.1, 2)
    assert [dict(candidate.params) for candidate in last.candidates][3:] == [
        {"window": 3, "ratio": 0.2}, {"window": 3, "ratio": 0.3},
    ]  # fmt: skip
    assert last.chosen is not None
    assert (last.chosen.params, last.remaining) == ({"window": 3, "ratio": 0.2}, 0)


def test_a_stage_without_any_success_is_the_last(store: Store) -> None:
    swept = cell("window=1,2", "ratio=0.1,0.2", search="sampler=staged", seeds=1)
    for id in [id for candidate in select(swept, HERE, store).candidates for id in candidate.ids]:
        write(store, TRIALS[id], None, state="failed", reason="diverged")
    last = select(swept, HERE, store)
    assert (len(last.candidates), last.settled, last.chosen) == (2, True, None)


def test_tpe_learns_from_results(store: Store) -> None:
    search = "sampler=tpe,candidates=24,batch=4"
    good = fulfil(store, cell("ratio=0.0..0.5", "window=1..8", search=search, seeds=1), near, random.Random(0))
    scores = [near(candidate) for candidate in good[-1].candidates]
    assert sum(scores[12:]) / len(scores[12:]) > sum(scores[:12]) / 12


def test_equal_candidates_are_one(store: Store) -> None:
    swept = cell("window=1,2", search="sampler=random,candidates=9", seeds=1)
    (*_, last) = fulfil(store, swept, lambda candidate: float(candidate.params["window"]), random.Random(0))
    assert [candidate.params for candidate in last.candidates] in (
        [{"window": 1}, {"window": 2}],
        [{"window": 2}, {"window": 1}],
    )
    assert last.chosen is not None
    assert last.chosen.params == {"window": 2}


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
@pytest.mark.parametrize("sampler", ["grid", "tpe,candidates=13,batch=13"])
def test_candidates_that_fall_behind_are_pruned(store: Store, pruner: str, sampler: str) -> None:
    swept = cell("set.lr=1..13", search=f"sampler={sampler},pruner={pruner}", seeds=1)
    first = select(swept, HERE, store).candidates
    bad, good, done = first[-4:], first[-5], first[:-5]
    fine, poor = [90.0 + step for step in range(9)], [10.0] * 9
    for number, candidate in enumerate(done):
        curve = [40.0 + number + step for step in range(9)]
        write(store, TRIALS[candidate.ids[0]], curve[-1], curve=curve)
    for candidate, curve in [(good, fine), *((candidate, poor) for candidate in bad)]:
        write(store, TRIALS[candidate.ids[0]], None, state="running", curve=curve)
    pruned = {candidate.ids[0]: reason for candidate, reason in select(swept, HERE, store).to_prune}
    assert set(pruned) <= {candidate.ids[0] for candidate in bad}
    assert len(pruned) == 4 if pruner == "median" else pruned, "a bracket of Hyperband prunes nothing"
    assert set(pruned.values()) == {f"dev accuracy 10 after 9 evaluations, {pruner} pruner"}
    write(store, TRIALS[good.ids[0]], 99.0, curve=fine)
    for candidate in bad:
        reason = PRUNED + pruned.get(candidate.ids[0], "by another")
        write(store, TRIALS[candidate.ids[0]], None, state="cancelled", reason=reason, curve=poor)
    last = select(swept, HERE, store)
    assert not last.to_prune
    assert [candidate.state for candidate in last.candidates].count("pruned") == 4
    assert last.chosen is not None
    assert last.chosen.params == good.params


def test_without_optuna_a_line_says_how_to_install_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert select(cell("ratio=0.1"), HERE, store).candidates
    with pytest.raises(ModuleNotFoundError, match="optuna") as caught:
        select(cell("ratio=0.1", search="sampler=tpe,candidates=2"), HERE, store)
    assert missing_library(caught.value) == "needs optuna: `pip install 'dropbench[sweep]'`"
