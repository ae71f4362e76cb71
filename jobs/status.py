"""How the trials are: read from the database and, for the active ones, from their run directories."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from db.store import Store, TrialRow
from harness.errors import unknown_name
from harness.settings import Settings
from harness.trial import TRIAL_STATES, TrialState
from jobs.attempts import now
from jobs.collect import Verdict, collect, look
from jobs.job import Job


@dataclass(frozen=True)
class Status:
    """Trials by state, as they were at a time.

    Attributes:
        counts: all states are there.
        as_of: when it was looked, ISO 8601; no active trial was left out.
        looked: how many run directories were looked at.
        ahead: how many of them know more than the database.
    """

    counts: dict[TrialState, int]
    as_of: str
    looked: int
    ahead: int

    def to_json(self) -> dict[str, int | str]:
        """The counts, and ``as_of``."""
        return {**{state: self.counts[state] for state in TRIAL_STATES}, "as_of": self.as_of}


def look_at(store: Store, settings: Settings) -> Status:
    """Count the trials by their true state, without changing anything."""
    as_of = now()
    counts = store.counts()
    return tally(as_of, counts, look(store, settings))


def tally(
    as_of: str, counts: dict[TrialState, int], found: Mapping[str, tuple[TrialRow, Job | None, Verdict]]
) -> Status:
    """The database's counts, with what was seen of the active trials (`jobs.collect.look`) in its place."""
    counts, ahead = dict(counts), 0
    looked = sum(verdict.looked for _, _, verdict in found.values())
    for row, _, verdict in found.values():
        if verdict.state != row.state:
            ahead += 1
            counts[row.state] -= 1
            counts[verdict.state] += 1
    return Status(counts, as_of, looked, ahead)


def render(status: Status) -> str:
    """Some lines for people."""
    shown = [f"{state:<10} {status.counts[state]:>7}" for state in TRIAL_STATES]
    shown.append(f"as of {status.as_of}: {status.looked} run directories of active trials were looked at")
    if status.ahead:
        shown.append(f"{status.ahead} of them know more than the database: dropbench collect takes it over")
    return "\n".join(shown)


def show_usage(store: Store, by: str, *, as_json: bool) -> None:
    """Print what attempts cost, by suite, user or attempt.

    Raises:
        InputError: it cannot be grouped so.
    """
    if by not in ("suite", "user", "attempt"):
        raise unknown_name("grouping", by, ("suite", "user", "attempt"))
    from db.usage import table, usage

    groups, whole = usage(store, by)  # type: ignore[arg-type]
    if as_json:
        print(json.dumps([one.to_json() for one in [*groups, whole]]))
        return
    from rich.console import Console

    from db.report.listing import print_table

    print_table(table(groups, whole, by), Console())  # type: ignore[arg-type]


def follow(store: Store, settings: Settings, interval: float) -> int:
    """Show the counts whenever they change, until no trial is active; returns how many are queued then."""
    before: dict[TrialState, int] = {}
    terminal = sys.stdout.isatty()
    while True:
        collect(store, settings)
        counts = store.counts()
        if counts != before:
            line = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no trials"
            print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", flush=True)
            before = counts
        if not counts["submitted"] and not counts["running"]:
            if terminal:
                print()
            return counts["queued"]
        time.sleep(interval)


def explain_nothing(store: Store, ids: Sequence[str], words: Sequence[str], wanted: str) -> str:
    """Why a command found nothing to do."""
    filter = " ".join(words)
    if not ids:
        return f"no trial matches '{filter}': dropbench status counts what there is"
    counts = store.counts(ids)
    found = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"none of the {len(ids)} trials that match '{filter}' is {wanted}: {found}"
