"""The retry policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dropbench.jobs.worker.retry import (
    EXHAUSTED,
    MAX_FRUITLESS_ATTEMPTS,
    MAX_FRUITLESS_PREEMPTIONS,
    MAX_SPLITS,
    apply_limits,
    excluded_nodes,
    pieces,
)


def ends(*states: str, step: int = 0, **fields: Any) -> list[dict[str, Any]]:
    return [{"state": state, "steps_done": step, "started_at": "2026-01-01", **fields} for state in states]


@pytest.mark.parametrize(
    ("states", "count"),
    [
        ([], 1),
        (["lost", "preempted"], 1),
        (["out_of_memory"], 2),
        (["out_of_memory", "preempted", "node_failure", "out_of_memory"], 4),
        (["out_of_memory", "out_of_memory", "failed"], 1),
        (["out_of_memory", "failed", "out_of_memory"], 2),
    ],
)
def test_pieces_double_each_time_that_memory_runs_out(states: list[str], count: int) -> None:
    assert pieces(ends(*states)) == count


def test_running_out_of_memory_with_a_sixteenth_fails() -> None:
    previous = ends(*["out_of_memory"] * (MAX_SPLITS - 1))
    assert apply_limits("out_of_memory", "x", (0, 0), previous) == ("out_of_memory", "x")
    previous += ends("out_of_memory")
    assert apply_limits("out_of_memory", "x", (0, 0), previous) == (
        "failed",
        "out of memory even with each micro-batch in 16 pieces; x",
    )


@pytest.mark.parametrize("state", ["lost", "timeout", "node_failure"])
def test_a_trial_without_progress_is_given_up(state: str) -> None:
    previous = ends("lost", "timeout", "node_failure", "lost", step=7)[: MAX_FRUITLESS_ATTEMPTS - 1]
    cause = f"{EXHAUSTED} after {MAX_FRUITLESS_ATTEMPTS} attempts in a row without a new checkpoint; x"
    assert apply_limits(state, "x", (7, 0), previous) == ("failed", cause)
    assert apply_limits(state, "x", (8, 0), previous) == (state, "x"), "there is a new checkpoint"
    assert apply_limits(state, "x", (7, 9), previous) == (state, "x"), "more of the evaluation is stored"
    evaluated = [{**attempt, "batches_evaluated": 9} for attempt in previous]
    assert apply_limits(state, "x", (7, 9), evaluated) == ("failed", cause)
    assert apply_limits(state, "x", (7, 9), [*evaluated[:-1], *previous[:1], *evaluated[-1:]]) == (state, "x")
    assert apply_limits(state, "x", (7, 0), [*previous, *ends("preempted", step=7)]) == (state, "x")


def test_preemptions_without_any_progress_are_given_up_later() -> None:
    states = [("preempted", "lost")[number % 5 == 0] for number in range(MAX_FRUITLESS_PREEMPTIONS - 1)]
    previous = ends(*states)
    cause = f"{EXHAUSTED} after {MAX_FRUITLESS_PREEMPTIONS} attempts in a row without a new checkpoint; x"
    assert apply_limits("preempted", "x", (0, 0), previous) == ("failed", cause)
    assert apply_limits("lost", "x", (0, 0), previous) == ("failed", cause)
    assert apply_limits("preempted", "x", (0, 0), previous[1:]) == ("preempted", "x")
    assert apply_limits("preempted", "x", (1, 0), previous) == ("preempted", "x"), "there is a new checkpoint"
    assert apply_limits("preempted", "x", (0, 0), [*previous, *ends("interrupted")]) == ("preempted", "x")


@pytest.mark.parametrize("state", ["interrupted", "cancelled", "failed", "succeeded"])
def test_other_ends_have_no_limit(state: str) -> None:
    assert apply_limits(state, "x", (7, 0), ends(*["lost"] * 20, step=7)) == (state, "x")


def test_nodes_that_failed_recently_are_excluded() -> None:
    recently = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    attempts = [
        *ends("node_failure", node="n1"),
        *ends("node_failure", node="n2", started_at=recently),
        *ends("lost", node="n3", started_at=recently),
        *ends("node_failure", node=None, started_at=recently),
    ]
    assert excluded_nodes(attempts) == {"n2"}
