"""From run directories to the database. The run directory is the truth; what the queue thinks of a trial gives way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from db.snapshot import Snapshot, snapshot
from db.store import Store, TrialRow
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.trial import TrialState
from jobs import executors, places
from jobs.attempts import settle
from jobs.worker import CANCELLED

ACTIVE = "state=submitted,running"
"""The filter of the trials that a run directory may know more about than the database."""


@dataclass(frozen=True)
class Job:
    """What can be known of a submission from here.

    Attributes:
        id: the submission's.
        alive: whether it runs, or will.
        near: whether its workers are on this machine, so that their locks tell the truth.
    """

    id: str
    alive: bool
    near: bool


@dataclass(frozen=True)
class Verdict:
    """The state of a trial; `died`: its last attempt has ended and nobody has noted it yet."""

    state: TrialState
    reason: str | None = None
    died: bool = False


def judge(directory: RunDirectory, job: Job | None) -> Verdict:
    """The state of a trial that the queue takes for submitted or running; changes nothing.

    The order of the looks matters: the lock, then the attempts, then the result. What is read later is newer, so that
    a worker that is just beginning or just ending is never taken for dead.
    """
    locked = directory.locked()
    attempts = directory.attempts()
    last = attempts[-1] if attempts else None
    result = (directory.path / "result.json").exists()
    running = last is not None and last["state"] == "running"
    alive = job is not None and job.alive
    if locked or (running and directory.locked()):
        return Verdict("running")
    if running and job is not None and job.alive and not job.near and not result:
        return Verdict("running")
    died = running
    if result:
        return Verdict("succeeded", died=died)
    if died:
        return Verdict("queued", "its worker was killed", died=True)
    if (directory.path / CANCELLED).exists():
        return Verdict("cancelled", "cancelled by the user")
    if last is None or (job is not None and last.get("submission") != job.id):
        return Verdict("submitted" if alive else "queued")
    if last["state"] in ("failed", "out_of_memory"):
        return Verdict("failed", last["cause"])
    if last["state"] == "cancelled":
        return Verdict("cancelled", last["cause"])
    # Preempted, the same job goes on with it; on a cluster also after a SIGTERM, which is how a requeue begins.
    if job is not None and alive and (last["state"] == "preempted" or not job.near):
        return Verdict("submitted", last["cause"])
    return Verdict("queued", last["cause"])


def look(store: Store, settings: Settings) -> dict[str, tuple[TrialRow, Job | None, Verdict]]:
    """Every active trial: what the database has, its job, and how it really is. Changes nothing."""
    rows = store.states(store.find(ACTIVE))
    jobs = {
        job.id: Job(job.id, executors.alive(job.executor, settings.runs, job.id), job.executor != "slurm")
        for job in (store.open_submissions() if rows else ())
    }
    found = {}
    for id, row in rows.items():
        job = jobs.get(row.submission_id or "")
        found[id] = (row, job, judge(RunDirectory(settings.runs / id), job))
    return found


def collect(store: Store, settings: Settings, *, thorough: bool = False) -> dict[str, TrialState]:
    """Bring the database up to date; dead attempts get their last word, dead submissions end.

    Args:
        store: the database.
        settings: where the runs are.
        thorough: take over the curves of running trials too, and the results of queued ones that others have run.

    Returns:
        the trials whose state changed, with the new one.

    Raises:
        InputError: the runs folder or the database cannot be written.
    """
    changed: dict[str, TrialState] = {}
    if thorough:
        changed |= {id: row.state for id, row in store.states(adopt(store, settings, store.find("queued"))).items()}
    if not store.open_submissions() and not store.find(ACTIVE):
        return changed
    snapshots: list[Snapshot] = []
    unreadable: dict[str, tuple[TrialState, str | None]] = {}
    busy: set[str | None] = set()
    with places.keeper(settings.runs):
        for id, (row, job, verdict) in look(store, settings).items():
            directory = RunDirectory(settings.runs / id)
            if verdict.died:
                verdict = bury(directory, job)
            if verdict.state in ("submitted", "running"):
                busy.add(row.submission_id)
            if (verdict.state, verdict.reason) != (row.state, row.reason):
                changed[id] = verdict.state
            elif not (thorough and verdict.state == "running"):
                continue
            try:
                snapshots.append(replace(snapshot(directory), state=verdict.state, reason=verdict.reason))
            except InputError as error:
                unreadable[id] = damaged(directory, verdict, error)
        store.record(snapshots)
        store.set_states(unreadable)
        for submission in store.open_submissions():
            living = executors.alive(submission.executor, settings.runs, submission.id)
            if submission.id not in busy and not living:
                store.end_submission(submission.id)
                places.clear(settings.runs, submission.id)
    return changed


def bury(directory: RunDirectory, job: Job | None) -> Verdict:
    """Note the end of an attempt whose worker died, unless another worker has come in between; the verdict after it."""
    with directory.lock() as mine:
        if mine:
            settle(directory)
    return judge(directory, job)


def adopt(store: Store, settings: Settings, ids: Iterable[str]) -> list[str]:
    """Take over the results of queued trials that were run before: with another database, or a lost one."""
    done = [id for id in ids if (settings.runs / id / "result.json").exists()]
    snapshots: list[Snapshot] = []
    unreadable: dict[str, tuple[TrialState, str | None]] = {}
    for id in [id for id, row in store.states(done).items() if row.state == "queued"]:
        directory = RunDirectory(settings.runs / id)
        try:
            with directory.lock() as mine:
                if mine:
                    settle(directory)
                    snapshots.append(snapshot(directory))
        except InputError as error:
            unreadable[id] = ("failed", str(error))
    if snapshots or unreadable:
        store.record(snapshots)
        store.set_states(unreadable)
    return [*(found.trial.id for found in snapshots), *unreadable]


def damaged(directory: RunDirectory, verdict: Verdict, error: InputError) -> tuple[TrialState, str | None]:
    """What becomes of a trial whose run directory cannot be read: without one it waits again, a damaged one failed."""
    if not directory.path.exists():
        return ("submitted", None) if verdict.state == "submitted" else ("queued", "its run directory was deleted")
    return "failed", str(error)
