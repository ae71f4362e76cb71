"""Reconcile the database with the run directories, which take precedence over what the queue says about a trial."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.exc import DatabaseError

from dropbench.db.cli.output import opened
from dropbench.db.reference.merge import opened_with
from dropbench.db.schema.connection import BUSY_TIMEOUT_S, DamagedDatabaseError
from dropbench.db.store.run_record import NEXT_STATE, RunRecord, read_run_record
from dropbench.db.store.store import Store, TrialRow
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import TrialState
from dropbench.jobs.submission.submission import Submission, inspect_submissions, revoke
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.attempt import attribute_cause, finalize_dead

ACTIVE = "state=submitted,running"
"""Filter of the trials whose run directory may be newer than the database."""


@dataclass(frozen=True)
class ObservedState:
    """The observed state of a trial, and its reason.

    Attributes:
        died: the last attempt has ended without recording its end.
        inspected: its run directory was read; it is not for a job that has never started.
    """

    state: TrialState
    reason: str | None = None
    died: bool = False
    inspected: bool = True


class ActiveTrial(NamedTuple):
    """A trial that the database lists as submitted or running, its submission, and its observed state."""

    row: TrialRow
    submission: Submission | None
    observed: ObservedState


def determine_state(directory: RunDirectory, submission: Submission | None) -> ObservedState:
    """Determine the state of a submitted or running trial without changing anything.

    The order of reads matters: the lock, then the attempts, then the result. What is read later is newer, so that a
    worker that is just starting or just ending is never taken for dead. Raises InputError for a damaged file.
    """
    if directory.locked():
        return ObservedState("running")
    last: dict[str, Any] = next(reversed(directory.attempts()), {})
    has_result = directory.succeeded()
    unfinished = last.get("state") == "running"
    job = submission or Submission("", alive=False)
    alive = job.is_alive(directory.id)
    if unfinished and (directory.locked() or (not has_result and job.may_run(directory.id, last))):
        return ObservedState("running")
    if has_result:
        return ObservedState("succeeded", died=unfinished)
    if unfinished:
        end = job.exit_cause(last)
        if end is None and (reason := directory.cancelled()) is not None:
            return ObservedState("cancelled", reason, died=True)
        state = NEXT_STATE.get(end[0], "queued") if end else "queued"
        if state == "queued" and alive and not job.is_local:
            state = "submitted"  # requeued
        return ObservedState(state, end[1] if end else "its worker was killed", died=True)
    if (reason := directory.cancelled()) is not None:
        return ObservedState("cancelled", reason)
    if not last or (submission is not None and last.get("submission") != submission.id):
        if alive:
            return ObservedState("submitted")
        return ObservedState(*(job.failed_before_start(directory.id) or ("queued", None)))
    if last["state"] in ("failed", "cancelled"):
        return ObservedState(last["state"], last.get("cause"))
    if not alive and (end := job.exit_cause(last)) and end[0] == "cancelled":
        return ObservedState("cancelled", end[1])
    # After a preemption the same job resumes the trial; on a cluster also after SIGTERM, with which a requeue begins.
    resumes = alive and (last["state"] == "preempted" or not job.is_local)
    return ObservedState("submitted" if resumes else "queued", last.get("cause"))


def inspect_active(
    store: Store, settings: Settings, *, always_inspect: Collection[str] = (), only_here: bool = False
) -> dict[str, ActiveTrial]:
    """Inspect every active trial by id, without changing anything.

    The run directories of trials without an attempt are not read while their job waits for a node, except those of
    `always_inspect`: in a large campaign most trials are such, and reading them takes minutes on a remote file system.
    With `only_here`, trials without a run directory are left out: they may run on another machine.
    """
    rows = store.states(store.find(ACTIVE))
    if only_here:
        rows = {id: row for id, row in rows.items() if id in Runs(settings.runs)}
    submissions = inspect_submissions(store.open_submissions() if rows else (), settings, with_history=True)
    any_remote = any(not submission.is_local for submission in submissions.values())
    attempted = {*always_inspect, *(store.attempted(ACTIVE) if any_remote else ())}
    active = {}
    for id, row in rows.items():
        submission = submissions.get(row.submission_id or "")
        if row.state == "submitted" and id not in attempted and submission is not None and submission.is_pending(id):
            observed = ObservedState("submitted", row.reason, inspected=False)
        else:
            try:
                observed = determine_state(Runs(settings.runs)[id], submission)
            except InputError as error:
                observed = ObservedState("failed", str(error))
        active[id] = ActiveTrial(row, submission, observed)
    return active


def collect(
    store: Store,
    settings: Settings,
    *,
    thorough: bool = False,
    always_inspect: Collection[str] = (),
    only_here: bool = False,
) -> dict[str, TrialState]:
    """Bring the database up to date, record the ends of dead attempts, and end dead submissions.

    With `thorough`, also import the curves of running trials, and the results of queued trials that were run elsewhere.
    Return the new states of the trials that changed. See `inspect_active` for `always_inspect` and `only_here`; with
    the latter, damaged run directories and submissions without a folder are left as they are, too.

    Raises:
        InputError: the runs folder or the database cannot be written, or, with `only_here`, another command holds the
            lock on dispatching for `BUSY_TIMEOUT_S`.
    """
    changed: dict[str, TrialState] = {}
    if thorough:
        imported = import_results(store, settings, store.find("queued"))
        changed |= {id: row.state for id, row in store.states(imported).items()}
    left = store.find(ACTIVE)
    if only_here and not any(id in Runs(settings.runs) for id in left):
        return changed
    if not store.open_submissions() and not left:
        return changed
    snapshots: list[RunRecord] = []
    unreadable: dict[str, tuple[TrialState, str | None]] = {}
    busy: set[str | None] = set()
    with slots.dispatch_lock(settings.runs, timeout=BUSY_TIMEOUT_S if only_here else math.inf):
        active = inspect_active(store, settings, always_inspect=always_inspect, only_here=only_here)
        for id, (row, submission, observed) in active.items():
            if not observed.inspected:
                busy.add(row.submission_id)
                continue
            directory = Runs(settings.runs)[id]
            try:
                if observed.died:
                    with directory.lock() as locked:
                        if locked:  # otherwise another worker took the trial meanwhile
                            finalize_dead(directory, submission.exit_cause if submission else None)
                remote = submission if submission is not None and not submission.is_local else None
                if (remote is not None and attribute_cause(directory, remote.exit_cause)) or observed.died:
                    observed = determine_state(directory, submission)
                if observed.state in ("submitted", "running"):
                    busy.add(row.submission_id)
                if (observed.state, observed.reason) != (row.state, row.reason):
                    changed[id] = observed.state
                elif not (thorough and observed.state == "running"):
                    continue
                snapshots.append(replace(read_run_record(directory), state=observed.state, reason=observed.reason))
            except InputError as error:
                if only_here:
                    continue
                exists = directory.path.exists()
                if observed.state == "running" or (observed.state == "submitted" and not exists):
                    unreadable[id] = (observed.state, None)
                elif exists:
                    unreadable[id] = ("failed", str(error))
                else:
                    unreadable[id] = ("queued", "its run directory was deleted")
        store.record(snapshots)
        store.set_states(unreadable)
        if only_here:  # the other active trials, and what `collect` has to report
            rest = store.states(store.find(ACTIVE)).values()
            busy |= {row.submission_id for row in rest}
        idle = [row for row in store.open_submissions() if row.id not in busy]
        idle = [row for row in idle if not only_here or Path(row.folder).is_dir()]
        for id, submission in inspect_submissions(idle, settings).items():
            if not submission.alive:
                if not submission.is_local:
                    revoke(submission.folder)
                store.end_submission(id)
                slots.remove_slots(settings.runs, id)
    return changed


def refresh(store: Store, settings: Settings, *, thorough: bool = False) -> None:
    """Collect the trials whose run directories are on this machine; warn if the database cannot be written.

    Others are left as they are: they run on another machine, with which the database is shared.
    """
    try:
        collect(store, settings, thorough=thorough, only_here=True)
    except DamagedDatabaseError:
        raise
    except (InputError, DatabaseError) as error:
        line = str(error).splitlines()[0]
        print(f"active trials are shown as of their last update: {line}", file=sys.stderr)


@contextlib.contextmanager
def opened_results(settings: Settings, reference: str | None = None, *, thorough: bool = False) -> Iterator[Store]:
    """Open the database for reading, after `refresh`, and with the trials of a reference if one is named.

    Raises:
        InputError: the reference is missing or damaged.
    """
    with opened(settings) as own:
        refresh(own, settings, thorough=thorough)
        with opened_with(own, reference) as store:
            yield store


def import_results(store: Store, settings: Settings, ids: Iterable[str]) -> list[str]:
    """Import the results of queued trials that were run with another database; return the ids of changed trials."""
    done = [id for id in ids if Runs(settings.runs)[id].succeeded()]
    snapshots: list[RunRecord] = []
    unreadable: dict[str, tuple[TrialState, str | None]] = {}
    for id in [id for id, row in store.states(done).items() if row.state == "queued"]:
        directory = Runs(settings.runs)[id]
        try:
            with directory.lock() as locked:
                if locked:
                    finalize_dead(directory)
                    snapshots.append(read_run_record(directory))
        except InputError as error:
            unreadable[id] = ("failed", str(error))
    if snapshots or unreadable:
        store.record(snapshots)
        store.set_states(unreadable)
    return [*(imported.trial.id for imported in snapshots), *unreadable]
