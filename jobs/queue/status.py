"""The states of trials, from the database and the run directories of active ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from textwrap import shorten

from sqlalchemy import Text, cast, select

from dropbench.db.report.view.requests import grouped
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Requests, Trials
from dropbench.db.store.requests import load_requests
from dropbench.db.store.run_record import find_damage
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import select as select_candidate
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import count_of, unknown_name
from dropbench.harness.settings import Settings
from dropbench.harness.suites.request import Request, RequestedCell
from dropbench.harness.trials.trial import TRIAL_STATES, TrialState
from dropbench.jobs.queue.reconcile import ActiveTrial, inspect_active
from dropbench.jobs.queue.search import trials_key
from dropbench.jobs.queue.train_progress import TrainProgress, train_progress

MAX_CHECKED = 1000
"""Results that `dropbench status` compares with their run directories; `dropbench db rebuild` reads all."""

MAX_REASONS = 5
"""Reasons of failed trials that are listed."""


@dataclass(frozen=True)
class Status:
    """Numbers of trials by state at one time.

    Attributes:
        counts: the counts of all states.
        as_of: the time, ISO 8601.
        inspected: number of run directories read.
        ahead: number of trials whose run directory is newer than the database.
        reasons: why the last attempts of queued trials ended.
        skipped: why the skipped trials are skipped.
        failed: why the failed trials failed, by id.
        notes: lines on jobs that wait in SLURM for more than their turn, and on a missing sacct.
        searches: a line per table whose searches have candidates to come.
        damaged: an error line per damaged run directory.
    """

    counts: dict[TrialState, int]
    as_of: str
    inspected: int
    ahead: int
    reasons: Sequence[str | None] = ()
    skipped: Sequence[str | None] = ()
    failed: Mapping[str, str | None] = field(default_factory=dict)
    notes: Sequence[str] = ()
    searches: Sequence[str] = ()
    damaged: Sequence[str] = ()

    def to_json(self) -> dict[str, int | str]:
        """Return the counts, and ``as_of``."""
        return {**{state: self.counts[state] for state in TRIAL_STATES}, "as_of": self.as_of}


def read_status(store: Store, settings: Settings) -> Status:
    """Count the trials by their true state, without changing anything."""
    queued = store.states([*store.attempted("queued")])
    status, active = observe(store, settings)
    reasons = [trial.observed.reason for trial in active.values() if trial.observed.state == "queued"]
    skipped = store.states(store.find("skipped")) if status.counts["skipped"] else {}
    reasons += [row.reason for row in queued.values()]
    texts = [row.reason for row in skipped.values()]
    failed = {id: row.reason for id, row in store.states(store.find("failed")).items()}
    failed |= {id: trial.observed.reason for id, trial in active.items() if trial.observed.state == "failed"}
    status = replace(status, reasons=reasons, skipped=texts, failed=failed, searches=describe_open(store))
    return replace(status, damaged=_damaged(store, settings))


def _damaged(store: Store, settings: Settings) -> list[str]:
    """Return the lines on trials that failed by damage to their run directory, and on the last results."""
    failed = store.states(store.find("failed")).values()
    reasons = [row.reason for row in failed if row.reason and f"/{row.id}" in row.reason]
    lines = [reason for reason in reasons if "damaged (" in reason or "trial.json" in reason]
    done = select(Trials.c.id).where(Trials.c.state == "succeeded").order_by(Trials.c.updated_at.desc())
    with reading(store.engine) as connection:
        ids = connection.scalars(done.limit(MAX_CHECKED)).all()
    return lines + find_damage(settings.runs, ids)


def observe(store: Store, settings: Settings) -> tuple[Status, dict[str, ActiveTrial]]:
    """Count the trials, with the observed states of active ones; return the active trials, too."""
    as_of, counts, ahead = utc_now_iso(), store.counts(), 0
    active = inspect_active(store, settings)
    for row, _, observed in active.values():
        if observed.state != row.state:
            ahead += 1
            counts[row.state] -= 1
            counts[observed.state] += 1
    inspected = sum(trial.observed.inspected for trial in active.values())
    slurm = next(
        (trial.submission.jobs for trial in active.values() if trial.submission and trial.submission.jobs), None
    )
    return Status(counts, as_of, inspected, ahead, notes=slurm.notes() if slurm else ()), active


def render(status: Status) -> str:
    """Format a status as text."""
    inspected = count_of(status.inspected, "run directory", "run directories")
    lines = [f"{state:<10} {status.counts[state]:>7}" for state in TRIAL_STATES]
    lines.append(f"As of {status.as_of}: {inspected} of active trials inspected.")
    explained = [*explain_waiting(status.reasons), *explain_skipped(status.skipped), *explain_failed(status.failed)]
    return "\n".join([*lines, *status.notes, *explained, *status.searches])


def explain_waiting(reasons: Iterable[str | None]) -> list[str]:
    """Return a line per cause for which the last attempts of queued trials ended, with what to do."""
    from dropbench.jobs.slurm.execution import OUT_OF_MEMORY

    causes = Counter(re.sub(r" (\(|on ).*", "", reason) for reason in reasons if reason)  # without memory and node
    remedy = {OUT_OF_MEMORY: "set a larger `memory` in the profile of dropbench.toml, then "}
    return [
        f"{count_of(count, 'trial')} queued again ({cause}): {remedy.get(cause, '')}run `dropbench submit`."
        for cause, count in causes.items()
    ]


def explain_skipped(reasons: Iterable[str | None]) -> list[str]:
    """Return a line per reason for which trials are skipped."""
    causes = Counter(filter(None, reasons))
    return [f"{count_of(count, 'trial')} skipped: {cause}." for cause, count in causes.items()]


def explain_failed(reasons: Mapping[str, str | None]) -> list[str]:
    """Return a line per reason for which trials failed, most frequent first, with one of them."""
    causes: dict[str, list[str]] = {}
    for id, reason in reasons.items():
        causes.setdefault(reason or "for a reason that is not known", []).append(id)
    order = sorted(causes.items(), key=lambda item: -len(item[1]))
    lines = [
        f"{count_of(len(ids), 'trial')} failed: {shorten(cause, 200, placeholder=' …')} (`dropbench logs {ids[0]}`)"
        for cause, ids in order[:MAX_REASONS]
    ]
    rest = sum(len(ids) for _, ids in order[MAX_REASONS:])
    return lines + [f"{count_of(rest, 'trial')} failed for other reasons."] * (rest > 0)


def print_usage(store: Store, by: str, *, as_json: bool) -> None:
    """Print the resources that attempts used, by suite, user or attempt; raise InputError for an unknown grouping."""
    if by not in ("suite", "user", "attempt"):
        raise unknown_name("grouping", by, ("suite", "user", "attempt"))
    from dropbench.db.queries.usage import table, usage

    groups, total = usage(store, by)  # type: ignore[arg-type]
    if as_json:
        print(json.dumps([asdict(group) for group in [*groups, total]]))
        return
    from dropbench.harness.cli.table import print_table

    print_table(table(groups, total, by))  # type: ignore[arg-type]


def explain_no_match(store: Store, ids: Sequence[str], words: Sequence[str], states: str) -> str:
    """Return why a command found no trial in these states to act on."""
    filter = " ".join(words)
    if not ids:
        return f"No trial matches '{filter}': run `dropbench status` to count the trials."
    trials = count_of(len(ids), "trial that matches", "trials that match")
    return f"None of the {trials} '{filter}' is {states}: {list_counts(store.counts(ids))}."


def list_counts(counts: Mapping[TrialState, int]) -> str:
    """Return the counts that are not zero: ``3 queued, 2 running``."""
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


@dataclass(frozen=True)
class Activity:
    """All active trials at one time.

    Attributes:
        status: the counts by true state.
        states: state and reason by id, of the trials that the database lists as submitted or running.
        running: the progress of the running trials.
    """

    status: Status
    states: Mapping[str, tuple[TrialState, str | None]]
    running: list[TrainProgress]


def activity(store: Store, settings: Settings) -> Activity:
    """Inspect every active trial. The database may be read-only."""
    status, active = observe(store, settings)
    states = {id: (trial.observed.state, trial.observed.reason) for id, trial in active.items()}
    running = [train_progress(settings.runs / id) for id, (state, _) in states.items() if state == "running"]
    return Activity(status, states, running)


def describe_open(store: Store) -> list[str]:
    """Return a line per table whose searches have yet to request candidates, with the command that requests them."""
    has_sweep = cast(Requests.c.content, Text).like('%"sampler"%')
    with reading(store.engine) as connection:
        loaded = load_requests(connection, has_sweep)
    own = [request for origin, request in loaded if origin == "own"]
    lines = []
    for suite in dict.fromkeys(request.suite.name for request in own):
        for table in grouped([request for request in own if request.suite.name == suite]):
            by_trials = {trials_key(cell): (cell, request) for cell, request in table.cells()}
            counts = [_to_request(cell, request, store) for cell, request in by_trials.values()]
            if any(counts):
                command = f"`dropbench enqueue {suite} --preset {table.newest.preset} …`"
                candidates = f"{count_of(sum(counts), 'candidate')} of {count_of(len(counts), 'cell')}"
                lines.append(f"{suite}, {table.label}: {candidates} to come: {command} requests them.")
    return lines


def _to_request(cell: RequestedCell, request: Request, store: Store) -> int:
    """Return the number of candidates of a cell that are not requested yet, one that is trained again included."""
    if cell.sweep is None or cell.remaining or not cell.sweep.seeds or cell.chosen is not None:
        return cell.remaining + int(cell.remaining > 0 and cell.sweep is not None and bool(cell.sweep.seeds))
    selection = select_candidate(cell, request.metrics[cell.request.task], store)
    return int(not selection.settled or selection.chosen is not None)
