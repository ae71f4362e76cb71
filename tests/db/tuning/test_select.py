"""The candidate that a cell chooses: results are recorded without any training."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropbench.db.schema.connection import connect
from dropbench.db.schema.tables import METADATA
from dropbench.db.statistics.seeds import summarize
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import PRUNED, Candidate, Selection
from dropbench.harness.suites.search_space import Sweep
from dropbench.harness.trials.metric import Metric
from tests.db.tuning.cells import ACCURACY, HERE, cell, select, write
from tests.requests import grid_cells

pytestmark = pytest.mark.usefixtures("tiny_task")


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


def test_the_metric_of_the_data_comes_before_the_first_of_the_task(store: Store) -> None:
    loss = Metric("loss", higher_is_better=False)
    swept = cell("ratio=0.1,0.2", seeds=1).model_copy(update={"selected_by": loss})
    for fixed, accuracy, value in zip(grid_cells(swept), (90.0, 80.0), (2.0, 1.0), strict=True):
        write(store, fixed.trials(HERE)[0], accuracy, value)
    selection = select(swept, HERE, store)
    assert selection.chosen is not None
    assert (selection.metric, selection.chosen.params, selection.chosen.dev) == (loss, {"ratio": 0.2}, 1.0)


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
