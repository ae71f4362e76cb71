"""The candidate that a cell chooses, and those that Optuna samples: results are recorded without any training."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropbench.db.schema.connection import connect
from dropbench.db.schema.tables import METADATA
from dropbench.db.statistics.seeds import summarize
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.db.tuning.propose import propose
from dropbench.db.tuning.select import PRUNED, Candidate, Selection
from dropbench.db.tuning.select import select as select_stored
from dropbench.harness.errors import missing_library
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.request import RequestedCandidate, RequestedCell
from dropbench.harness.suites.search_space import Params, Sweep, parse_search, parse_space
from dropbench.harness.suites.suite import parse_suite
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import candidate_of
from tests.requests import grid_cells

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


TRIALS: dict[str, Trial] = {}
"""The trials of all candidates that `select` has returned."""


def select(swept: RequestedCell, settings: Settings, store: Store) -> Selection:
    """Return the state of a cell as its request or its search has it."""

    def make(params: Params) -> RequestedCandidate:
        own = swept.with_params(params).trials(settings)
        TRIALS.update({trial.id: trial for trial in own})
        return candidate_of(params, own)

    sweep, metrics = swept.sweep, spec_of("tiny").metrics
    assert sweep is not None
    if not sweep.is_grid:
        return propose(swept, make, metrics, store)
    stored = swept.model_copy(update={"candidates": tuple(map(make, sweep.grid()))})
    return select_stored(stored, metrics, store)


def cell(*space: str, search: str = "sampler=grid", seeds: int = 2) -> RequestedCell:
    suite = parse_suite(SUITE, "mine", "mine.yaml")
    choice = SuiteOptions(sweep=parse_space(space), search=parse_search(search), seeds=tuple(range(seeds)))
    (cell,) = suite.cells(choice)
    return RequestedCell(**dict(cell), measured=ACCURACY)


def write(
    store: Store, trial: Trial, dev: float | None, test: float = 0.0, curve: Sequence[float] = (), **fields: Any
) -> None:
    points: list[tuple[str, int, float | None]] = [
        ("dev/accuracy", 10 * number, value) for number, value in enumerate(curve, 1)
    ]
    state = fields.pop("state", "succeeded")
    if state == "succeeded":
        points += [("dev/accuracy", -1, dev), ("test/accuracy", -1, test), ("dev/loss", -1, test)]
    store.record([RunRecord(trial, state, fields.pop("reason", None), [], points)])


def test_the_best_on_dev_is_chosen_whatever_test_says(store: Store) -> None:
    swept = cell("ratio=0.1,0.2,0.3")
    for fixed, dev, test in zip(grid_cells(swept), (70.0, 80.0, 75.0), (99.0, 1.0, 98.0), strict=True):
        low, high = fixed.trials(HERE)
        write(store, low, dev - 5, test)
        write(store, high, dev + 5, test)
    selection = select(swept, HERE, store)
    assert selection.chosen is not None
    assert (selection.chosen.params, selection.chosen.dev, selection.chosen.n) == ({"ratio": 0.2}, 80.0, 2)
    assert selection.metric == ACCURACY
    (best, *_) = grid_cells(swept)
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
        trials = [fixed.trials(HERE)[0] for fixed in grid_cells(swept)]
        first = [dev for dev, _ in scores].index(max(dev for dev, _ in scores))
        tests = [test for _, test in scores]
        for _ in range(3):
            for trial, (dev, _), test in zip(trials, scores, tests, strict=True):
                write(store, trial, dev, test)
            chosen = select(swept, HERE, store).chosen
            assert chosen is not None
            assert chosen.params["ratio"] == first / 100
            draw.shuffle(tests)


@given(st.lists(st.integers(0, 5), min_size=1), st.booleans())
def test_of_equals_the_first_is_chosen_in_either_direction(scores: list[int], higher: bool) -> None:
    swept = cell("ratio=0.1")
    made = tuple(
        Candidate({"number": number}, swept, "", (), "succeeded", dev=dev) for number, dev in enumerate(scores)
    )
    chosen = Selection(Sweep(space={}), made, Metric("any", higher_is_better=higher)).chosen
    assert chosen is not None
    assert chosen.params["number"] == scores.index(max(scores) if higher else min(scores))


@pytest.mark.parametrize("higher", [True, False])
def test_rounding_decides_no_tie(higher: bool) -> None:
    """Both have 878 of 900 right over five seeds; the mean percentages differ in the 16th digit."""
    counts = ((165, 173, 180, 180, 180), (173, 175, 175, 175, 180))
    means = [summarize(100 * count / 180 for count in own).mean for own in (counts if higher else counts[::-1])]
    assert means[0] != means[1]
    made = tuple(
        Candidate({"number": number}, cell("ratio=0.1"), "", (), "succeeded", dev=dev)
        for number, dev in enumerate(means)
    )
    chosen = Selection(Sweep(space={}), made, Metric("any", higher_is_better=higher)).chosen
    assert chosen is made[0]


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
        Candidate({"number": number}, cell("ratio=0.1"), "", (), state, dev=50.0 + number)  # type: ignore[arg-type]
        for number, state in enumerate(states)
    )
    selection = Selection(Sweep(space={}), made, ACCURACY)
    assert selection.settled is settled
    assert (selection.chosen.params["number"] if selection.chosen else None) == chosen
    assert not Selection(Sweep(space={}), made, ACCURACY, remaining=1).settled


def test_the_state_of_a_candidate(store: Store) -> None:
    swept = cell("ratio=0.1,0.2,0.3,0.4,0.5,0.6,0.7")
    first, second, third, fourth, fifth, sixth, _ = [candidate.trials(HERE) for candidate in grid_cells(swept)]
    write(store, first[0], 60.0)
    write(store, first[1], None)
    write(store, second[0], 70.0)
    write(store, second[1], 0.0, state="failed", reason="no memory")
    write(store, third[0], 70.0)
    write(store, third[1], 0.0, state="cancelled", reason=f"{PRUNED}dev accuracy 3")
    write(store, fourth[0], 0.0, state="cancelled", reason=f"{PRUNED}dev accuracy 3")
    write(store, fourth[1], 0.0, state="running")
    write(store, fifth[0], 80.0)
    write(store, sixth[0], 80.0)
    write(store, sixth[1], 80.0)
    candidates = select(swept, HERE, store).candidates
    assert [(candidate.state, candidate.reason, candidate.dev, candidate.n) for candidate in candidates] == [
        ("failed", "a run gave no finite dev score", 60.0, 1),
        ("failed", "no memory", 70.0, 1),
        ("pruned", "dev accuracy 3", 70.0, 1),
        ("running", None, None, 0),
        ("not run", None, 80.0, 1),
        ("succeeded", None, 80.0, 2),
        ("not run", None, None, 0),
    ]


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
