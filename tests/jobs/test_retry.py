"""What comes after an attempt, by its cause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.retry import GAVE_UP, HALVINGS, LIMIT, limited, pieces, shunned


def ends(*states: str, step: int = 0, **fields: Any) -> list[dict[str, Any]]:
    return [{"state": state, "steps_done": step, "started_at": "2026-01-01", **fields} for state in states]


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([], 1),
        (["lost", "preempted"], 1),
        (["out_of_memory"], 2),
        (["out_of_memory", "preempted", "node_failure", "out_of_memory"], 4),
        (["out_of_memory", "out_of_memory", "failed"], 1),
        (["out_of_memory", "failed", "out_of_memory"], 2),
    ],
)
def test_pieces_double_with_each_time_that_memory_was_short(states: list[str], found: int) -> None:
    assert pieces(ends(*states)) == found


def test_memory_that_is_too_small_for_a_sixteenth_fails() -> None:
    before = ends(*["out_of_memory"] * (HALVINGS - 1))
    assert limited("out_of_memory", "x", 0, before) == ("out_of_memory", "x")
    before += ends("out_of_memory")
    assert limited("out_of_memory", "x", 0, before) == (
        "failed",
        "out of memory even with each micro-batch in 16 pieces; x",
    )


@pytest.mark.parametrize("state", ["lost", "timeout", "node_failure"])
def test_who_gets_nowhere_is_given_up(state: str) -> None:
    before = ends("lost", "timeout", "node_failure", "lost", step=7)[: LIMIT - 1]
    assert limited(state, "x", 7, before)[0] == "failed"
    assert (limited(state, "x", 7, before)[1] or "").startswith(f"{GAVE_UP} after {LIMIT} attempts in a row")
    assert limited(state, "x", 8, before) == (state, "x"), "it has got on"
    assert limited(state, "x", 7, [*before, *ends("preempted", step=7)]) == (state, "x")


@pytest.mark.parametrize("state", ["preempted", "interrupted", "cancelled", "failed", "succeeded"])
def test_the_rest_has_no_limit(state: str) -> None:
    assert limited(state, "x", 7, ends(*["lost"] * 20, step=7)) == (state, "x")


def test_nodes_that_failed_lately_are_shunned() -> None:
    lately = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    attempts = [
        *ends("node_failure", node="n1"),
        *ends("node_failure", node="n2", started_at=lately),
        *ends("lost", node="n3", started_at=lately),
        *ends("node_failure", node=None, started_at=lately),
    ]
    assert shunned(attempts) == {"n2"}
