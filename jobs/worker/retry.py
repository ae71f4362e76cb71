"""Retry policy: what follows an attempt that did not succeed, by its cause. All state is in the attempts' records.

A program error is not retried. A trial that was preempted, stopped, lost, or reached its time limit resumes from its
last checkpoint; after a node failure it resumes on another node (`excluded_nodes`); after running out of memory it
resumes with its micro-batches in twice as many pieces (`pieces`), so that a step stays the mean over the same samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

MAX_FRUITLESS_ATTEMPTS = 5
"""Consecutive attempts that may end (lost, at a time limit, or with a node) without a new checkpoint or more stored
batches of an evaluation before the trial is given up."""

MAX_FRUITLESS_PREEMPTIONS = 20
"""The same, if preemptions are among them: on a busy cluster a few are no evidence against the trial. A time limit ends
an attempt by the same signal, and one that is shorter than the start of training would do so for ever."""

MAX_SPLITS = 4
"""Times that micro-batches may be halved: down to a sixteenth, which takes an eighth of the memory or more."""

EXHAUSTED = "given up"
"""Prefix of the cause of a trial that was given up; the next `dropbench run` retries such a trial."""

_KILLED = ("lost", "timeout", "node_failure")
_LIMITS = ((_KILLED, MAX_FRUITLESS_ATTEMPTS), ((*_KILLED, "preempted"), MAX_FRUITLESS_PREEMPTIONS))
"""States of attempts, and how many of these in a row may be fruitless."""

Record = Mapping[str, Any]
Progress = tuple[int | None, int]
"""The steps done, and the batches of an evaluation after them."""


def progress(attempt: Record) -> Progress:
    """Return how far a trial was at the end of an attempt."""
    return attempt.get("steps_done"), attempt.get("batches_evaluated") or 0


def pieces(attempts: Sequence[Record]) -> int:
    """Return the number of pieces of each micro-batch of the next attempt; after `dropbench retry` of a failure, 1."""
    since_failure = itertools.takewhile(lambda attempt: attempt["state"] != "failed", reversed(attempts))
    return int(2 ** sum(attempt["state"] == "out_of_memory" for attempt in since_failure))


def apply_limits(state: str, cause: str | None, done: Progress, previous: Sequence[Record]) -> tuple[str, str | None]:
    """Return an attempt's state and cause, replaced by "failed" if the previous attempts exhaust a limit.

    `done` is its `progress`, with the step of its last checkpoint.
    """
    if state == "out_of_memory" and (count := pieces(previous)) >= 2**MAX_SPLITS:
        return "failed", f"out of memory even with each micro-batch in {count} pieces; {cause}"
    for states, limit in _LIMITS:
        if state in states:
            ends = ((attempt["state"] in states, progress(attempt)) for attempt in reversed(previous))
            fruitless = 1 + len(list(itertools.takewhile(lambda end: end == (True, done), ends)))
            if fruitless >= limit:
                return "failed", f"{EXHAUSTED} after {fruitless} attempts in a row without a new checkpoint; {cause}"
    return state, cause


def can_retry_at_once(attempts: Sequence[Record]) -> bool:
    """Return whether the same worker may retry: it ran out of memory and survived."""
    return bool(attempts) and attempts[-1]["state"] == "out_of_memory"


def excluded_nodes(attempts: Sequence[Record]) -> frozenset[str]:
    """Return the nodes that failed during an attempt in the last day."""
    recent = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    failures = [attempt for attempt in attempts if attempt["state"] == "node_failure" and attempt.get("node")]
    return frozenset(str(attempt["node"]) for attempt in failures if (attempt.get("started_at") or "") > recent)
