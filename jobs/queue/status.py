"""The states of trials, read from the database and, for active trials, from their run directories."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from db.store.store import Store
from harness.clock import utc_now_iso
from harness.errors import unknown_name
from harness.settings import Settings
from harness.trials.trial import TRIAL_STATES, TrialState
from jobs.queue.reconcile import ActiveTrial, collect, inspect_active


@dataclass(frozen=True)
class Status:
    """Numbers of trials by state at one time.

    Attributes:
        counts: the counts of all states.
        as_of: the time, ISO 8601.
        inspected: number of run directories read.
        ahead: number of trials whose run directory is newer than the database.
    """

    counts: dict[TrialState, int]
    as_of: str
    inspected: int
    ahead: int

    def to_json(self) -> dict[str, int | str]:
        """Return the counts, and ``as_of``."""
        return {**{state: self.counts[state] for state in TRIAL_STATES}, "as_of": self.as_of}


def read_status(store: Store, settings: Settings) -> Status:
    """Count the trials by their true state, without changing anything."""
    return correct_counts(utc_now_iso(), store.counts(), inspect_active(store, settings))


def correct_counts(as_of: str, counts: dict[TrialState, int], active: Mapping[str, ActiveTrial]) -> Status:
    """Replace the database's states of active trials in `counts` by the observed ones."""
    counts, ahead = dict(counts), 0
    for row, _, observed in active.values():
        if observed.state != row.state:
            ahead += 1
            counts[row.state] -= 1
            counts[observed.state] += 1
    return Status(counts, as_of, sum(trial.observed.inspected for trial in active.values()), ahead)


def render(status: Status) -> str:
    """Format a status as text."""
    lines = [f"{state:<10} {status.counts[state]:>7}" for state in TRIAL_STATES]
    lines.append(f"As of {status.as_of}: {status.inspected} run directories of active trials inspected.")
    if status.ahead:
        lines.append(f"{status.ahead} of them are newer than the database: run `dropbench collect` to update it.")
    return "\n".join(lines)


def print_usage(store: Store, by: str, *, as_json: bool) -> None:
    """Print the resources that attempts used, by suite, user or attempt.

    Raises:
        InputError: the grouping is unknown.
    """
    if by not in ("suite", "user", "attempt"):
        raise unknown_name("grouping", by, ("suite", "user", "attempt"))
    from db.queries.usage import table, usage

    groups, total = usage(store, by)  # type: ignore[arg-type]
    if as_json:
        print(json.dumps([asdict(group) for group in [*groups, total]]))
        return
    from db.report.formats.listing import print_listing

    print_listing(table(groups, total, by))  # type: ignore[arg-type]


def watch(store: Store, settings: Settings, interval: float) -> int:
    """Print the counts whenever they change, until no trial is active; return the number of queued trials."""
    previous: dict[TrialState, int] = {}
    terminal = sys.stdout.isatty()
    while True:
        collect(store, settings)
        counts = store.counts()
        if counts != previous:
            line = _list_counts(counts) or "no trials"
            print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", flush=True)
            previous = counts
        if not counts["submitted"] and not counts["running"]:
            if terminal:
                print()
            return counts["queued"]
        time.sleep(interval)


def explain_no_match(store: Store, ids: Sequence[str], words: Sequence[str], states: str) -> str:
    """Return why a command found no trial in these states to act on."""
    filter = " ".join(words)
    if not ids:
        return f"No trial matches '{filter}': run `dropbench status` to count the trials."
    return f"None of the {len(ids)} trials that match '{filter}' is {states}: {_list_counts(store.counts(ids))}."


def _list_counts(counts: Mapping[TrialState, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
