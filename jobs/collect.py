"""From run directories to the database. The run directory is the truth; what the queue thinks of a trial gives way."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from db.snapshot import AFTER, Snapshot, snapshot
from db.store import Store, TrialRow
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.trial import TrialState
from jobs import places
from jobs.attempts import explain, settle
from jobs.job import Job, find, withdraw

ACTIVE = "state=submitted,running"
"""The filter of the trials that a run directory may know more about than the database."""


@dataclass(frozen=True)
class Verdict:
    """The state of a trial.

    Attributes:
        state: the state.
        reason: why.
        died: its last attempt has ended, and nobody has noted it yet.
        looked: at its run directory; there is no need to where its job has never begun.
    """

    state: TrialState
    reason: str | None = None
    died: bool = False
    looked: bool = True


def judge(directory: RunDirectory, job: Job | None) -> Verdict:
    """The state of a trial that the queue takes for submitted or running; changes nothing.

    The order of the looks matters: the lock, then the attempts, then the result. What is read later is newer, so that
    a worker that is just beginning or just ending is never taken for dead.
    """
    locked = directory.locked()
    attempts = directory.attempts()
    last = attempts[-1] if attempts else None
    result = directory.succeeded()
    running = last is not None and last["state"] == "running"
    alive = job is not None and job.lives(directory.id)
    if locked or (running and directory.locked()):
        return Verdict("running")
    if running and not result and last is not None and job is not None and job.works(directory.id, last):
        return Verdict("running")
    died = running
    if result:
        return Verdict("succeeded", died=died)
    if died:
        told = job.death(last) if job is not None and last is not None else None
        if told is None and (wish := directory.cancelled()) is not None:
            return Verdict("cancelled", wish, died=True)
        state = AFTER.get(told[0], "queued") if told else "queued"
        if state == "queued" and job is not None and alive and not job.near:
            state = "submitted"  # requeued
        return Verdict(state, told[1] if told else "its worker was killed", died=True)
    if (wish := directory.cancelled()) is not None:
        return Verdict("cancelled", wish)
    if last is None or (job is not None and last.get("submission") != job.id):
        if alive:
            return Verdict("submitted")
        state, reason = (job.stillborn(directory.id) if job else None) or ("queued", None)
        return Verdict(state, reason)
    if last["state"] == "failed":
        return Verdict("failed", last["cause"])
    if last["state"] == "cancelled":
        return Verdict("cancelled", last["cause"])
    if job is not None and not alive and (told := job.death(last)) and told[0] == "cancelled":
        return Verdict("cancelled", told[1])
    # Preempted, the same job goes on with it; on a cluster also after a SIGTERM, which is how a requeue begins.
    if job is not None and alive and (last["state"] == "preempted" or not job.near):
        return Verdict("submitted", last["cause"])
    return Verdict("queued", last["cause"])


def look(
    store: Store, settings: Settings, *, closely: Collection[str] = ()
) -> dict[str, tuple[TrialRow, Job | None, Verdict]]:
    """Every active trial: what the database has, its job, and how it really is. Changes nothing.

    Of those that were never begun with, and whose job still waits for a node, nothing but that is looked at: of a
    large campaign they are most, and reading a run directory of each takes minutes where these are on another machine.

    Args:
        store: the database.
        settings: where the runs are.
        closely: trials that are not to be left out of that.
    """
    rows = store.states(store.find(ACTIVE))
    jobs = find(store.open_submissions() if rows else (), settings, causes=True)
    far = any(not job.near for job in jobs.values())
    begun = {*closely, *(store.attempted(ACTIVE) if far else ())}
    found = {}
    for id, row in rows.items():
        job = jobs.get(row.submission_id or "")
        if row.state == "submitted" and id not in begun and job is not None and job.waits(id):
            verdict = Verdict("submitted", row.reason, looked=False)
        else:
            verdict = judge(RunDirectory(settings.runs / id), job)
        found[id] = (row, job, verdict)
    return found


def collect(
    store: Store, settings: Settings, *, thorough: bool = False, closely: Collection[str] = ()
) -> dict[str, TrialState]:
    """Bring the database up to date; dead attempts get their last word, dead submissions end.

    Args:
        store: the database.
        settings: where the runs are.
        thorough: take over the curves of running trials too, and the results of queued ones that others have run.
        closely: trials to look at even where their job still waits.

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
        for id, (row, job, verdict) in look(store, settings, closely=closely).items():
            if not verdict.looked:
                busy.add(row.submission_id)
                continue
            directory = RunDirectory(settings.runs / id)
            if verdict.died:
                verdict = bury(directory, job)
            if job is not None and not job.near:
                explain(directory, job.death)
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
        submissions = [one for one in store.open_submissions() if one.id not in busy]
        for id, job in find(submissions, settings).items():
            if not job.alive:
                if not job.near:
                    withdraw(job.folder)
                store.end_submission(id)
                places.clear(settings.runs, id)
    return changed


def bury(directory: RunDirectory, job: Job | None) -> Verdict:
    """Note the end of an attempt whose worker died, unless another worker has come in between; the verdict after it."""
    with directory.lock() as mine:
        if mine:
            settle(directory, job.death if job else None)
    return judge(directory, job)


def adopt(store: Store, settings: Settings, ids: Iterable[str]) -> list[str]:
    """Take over the results of queued trials that were run before: with another database, or a lost one."""
    done = [id for id in ids if RunDirectory(settings.runs / id).succeeded()]
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
