"""What comes after an attempt that did not succeed, by its cause. What was tried before is read from the attempts.

A program error is not tried again. What was preempted, stopped, lost, or ran into its time limit goes on from its last
checkpoint; what died of a node does so on another one (`shunned`); what had too little memory does with its
micro-batches in twice as many pieces (`pieces`), so that a step stays the mean over the same samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

LIMIT = 5
"""Attempts in a row that may end without a new checkpoint, lost, at a time limit or with a node, before the trial is
given up. One that was preempted has no limit: on a busy cluster that says nothing about it."""

HALVINGS = 4
"""Times that micro-batches may be halved: down to a sixteenth, which takes an eighth of the memory or more."""

GAVE_UP = "given up"
"""How the cause of a trial that was given up begins; a new `dropbench run` tries such a trial again."""

_FRUITLESS = ("lost", "timeout", "node_failure")
_SHUNNED = timedelta(hours=24)

Record = Mapping[str, Any]


def pieces(attempts: Sequence[Record]) -> int:
    """The pieces that the next attempt cuts each micro-batch into; after a failure, tried again by hand, one."""
    since = itertools.takewhile(lambda one: one["state"] != "failed", reversed(attempts))
    return int(2 ** sum(one["state"] == "out_of_memory" for one in since))


def limited(state: str, cause: str | None, step: int | None, before: Sequence[Record]) -> tuple[str, str | None]:
    """The state and the cause of an attempt's end: as they are, or "failed" where it was one time too many.

    Args:
        state: of the attempt.
        cause: of it.
        step: the step of the last checkpoint.
        before: the attempts before it.
    """
    if state == "out_of_memory" and (cut := pieces(before)) >= 2**HALVINGS:
        return "failed", f"out of memory even with each micro-batch in {cut} pieces; {cause}"
    if state in _FRUITLESS:
        earlier = ((one["state"], one.get("steps_done")) for one in reversed(before))
        row = itertools.takewhile(lambda one: one[0] in _FRUITLESS and one[1] == step, earlier)
        if (fruitless := 1 + sum(1 for _ in row)) >= LIMIT:
            return "failed", f"{GAVE_UP} after {fruitless} attempts in a row that left no new checkpoint; {cause}"
    return state, cause


def at_once(attempts: Sequence[Record]) -> bool:
    """Whether the same worker may try again: it had too little memory, and lives."""
    return bool(attempts) and attempts[-1]["state"] == "out_of_memory"


def shunned(attempts: Sequence[Record]) -> frozenset[str]:
    """The nodes that failed under a trial lately."""
    recent = (datetime.now(UTC) - _SHUNNED).isoformat()
    failed = (one for one in attempts if one["state"] == "node_failure" and (one.get("started_at") or "") > recent)
    return frozenset(str(one["node"]) for one in failed if one.get("node"))
