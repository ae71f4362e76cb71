"""The states of trials, read from the database and, for active trials, from their run directories."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from db.store.store import Store
from harness.clock import utc_now_iso
from harness.errors import count_of, unknown_name
from harness.settings import Settings
from harness.trials.trial import TRIAL_STATES, TrialState
from jobs.queue.reconcile import ActiveTrial, collect, inspect_active
from jobs.slurm.execution import OUT_OF_MEMORY


@dataclass(frozen=True)
class Status:
    """Numbers of trials by state at one time.

    Attributes:
        counts: the counts of all states.
        as_of: the time, ISO 8601.
        inspected: number of run directories read.
        ahead: number of trials whose run directory is newer than the database.
        reasons: why the last attempts of queued trials ended.
    """

    counts: dict[TrialState, int]
    as_of: str
    inspected: int
    ahead: int
    reasons: Sequence[str | None] = ()

    def to_json(self) -> dict[str, int | str]:
        """Return the counts, and ``as_of``."""
        return {**{state: self.counts[state] for state in TRIAL_STATES}, "as_of": self.as_of}


def read_status(store: Store, settings: Settings) -> Status:
    """Count the trials by their true state, without changing anything."""
    queued = store.states([*store.attempted("queued")])
    status, active = observe(store, settings)
    reasons = [trial.observed.reason for trial in active.values() if trial.observed.state == "queued"]
    return replace(status, reasons=[*reasons, *(row.reason for row in queued.values())])


def observe(store: Store, settings: Settings) -> tuple[Status, dict[str, ActiveTrial]]:
    """Count the trials, with the observed states of active ones; return the active trials, too."""
    as_of, counts, ahead = utc_now_iso(), store.counts(), 0
    active = inspect_active(store, settings)
    for row, _, observed in active.values():
        if observed.state != row.state:
            ahead += 1
            counts[row.state] -= 1
            counts[observed.state] += 1
    return Status(counts, as_of, sum(trial.observed.inspected for trial in active.values()), ahead), active


def render(status: Status) -> str:
    """Format a status as text."""
    inspected = count_of(status.inspected, "run directory", "run directories")
    lines = [f"{state:<10} {status.counts[state]:>7}" for state in TRIAL_STATES]
    lines.append(f"As of {status.as_of}: {inspected} of active trials inspected.")
    if status.ahead:
        lines.append(f"{status.ahead} of them are newer than the database: run `dropbench collect` to update it.")
    return "\n".join([*lines, *explain_waiting(status.reasons)])


def explain_waiting(reasons: Iterable[str | None]) -> list[str]:
    """Return a line per cause for which the last attempts of queued trials ended, with what to do."""
    causes = Counter(re.sub(r" (\(|on ).*", "", reason) for reason in reasons if reason)  # without memory and node
    remedy = {OUT_OF_MEMORY: "set a larger `memory` in the profile of dropbench.toml, then "}
    return [
        f"{count_of(count, 'trial')} queued again ({cause}): {remedy.get(cause, '')}run `dropbench submit`."
        for cause, count in causes.items()
    ]


def print_usage(store: Store, by: str, *, as_json: bool) -> None:
    """Print the resources that attempts used, by suite, user or attempt; raise InputError for an unknown grouping."""
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
    trials = count_of(len(ids), "trial that matches", "trials that match")
    return f"None of the {trials} '{filter}' is {states}: {_list_counts(store.counts(ids))}."


def _list_counts(counts: Mapping[TrialState, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
