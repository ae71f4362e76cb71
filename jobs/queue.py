"""What people do to the queue: ask for trials, cancel them, try failed ones again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from db.store import Enqueued, Store
from harness.rundir import BY_THE_USER, CANCELLED, RunDirectory
from harness.settings import Settings
from harness.task import TASKS
from harness.trial import Trial
from jobs import job, places, slurm
from jobs.collect import adopt, collect
from jobs.retry import GAVE_UP


@dataclass
class Cancelled:
    """Ids that will not run, and ids of trials that are running and were asked to stop."""

    waiting: list[str] = field(default_factory=list)
    stopping: list[str] = field(default_factory=list)


def enqueue(store: Store, settings: Settings, items: Sequence[tuple[Trial, str | None]]) -> Enqueued:
    """Ask for trials, each with its suite; those that have a result somewhere below `settings.runs` have it at once.

    Raises:
        InputError: the database or a run directory cannot be written; a trial that is new turns out to be impossible.
    """
    known = store.states([trial.id for trial, _ in items])
    fresh = {trial.config_id: trial for trial, _ in items if trial.id not in known}
    for trial in fresh.values():  # one of each configuration: seeds make no difference
        TASKS.get(trial.task).check(trial)
    present = [(RunDirectory(settings.runs / trial.id), suite) for trial, suite in items]
    present = [(directory, suite) for directory, suite in present if directory.path.is_dir()]
    if present:
        with places.keeper(settings.runs):
            for directory, suite in present:
                _call_back(directory)
                directory.add_suites([suite] if suite else [])
    found = store.enqueue(items)
    adopt(store, settings, [trial.id for trial, _ in items])
    return found


def revive(store: Store, ids: Sequence[str]) -> list[str]:
    """Queue again what was given up for dying too often: that is not the program's error, and may be mended by now."""
    failed = [row for row in store.states(ids).values() if row.state == "failed"]
    given_up = [row.id for row in failed if (row.reason or "").startswith(GAVE_UP)]
    return store.set_states(dict.fromkeys(given_up, ("queued", None)), only_from={"failed"}) if given_up else []


def retry(store: Store, settings: Settings, ids: Iterable[str]) -> list[str]:
    """Queue failed and cancelled trials again; they go on from their checkpoint. Returns those that were."""
    again = [id for id, row in store.states(list(ids)).items() if row.state in ("failed", "cancelled")]
    for id in again:
        _call_back(RunDirectory(settings.runs / id))
    return store.set_states(dict.fromkeys(again, ("queued", None)), only_from={"failed", "cancelled"})


def cancel(store: Store, settings: Settings, ids: Iterable[str], reason: str = BY_THE_USER) -> Cancelled:
    """Take trials out of the queue, and ask the workers of running ones to write a checkpoint and stop."""
    collect(store, settings)
    rows = {id: row for id, row in store.states(list(ids)).items() if row.state in ("queued", "submitted", "running")}
    for id in rows:
        if (settings.runs / id).is_dir():
            RunDirectory(settings.runs / id).cancel(reason)
    waiting = [id for id, row in rows.items() if row.state == "queued"]
    store.set_states(dict.fromkeys(waiting, ("cancelled", reason)), only_from={"queued"})
    collect(store, settings, closely=rows)
    _cancel_jobs(store)
    after = store.states(list(rows))
    return Cancelled(
        waiting=[id for id, row in after.items() if row.state == "cancelled"],
        stopping=[id for id, row in after.items() if row.state in ("submitted", "running")],
    )


def _cancel_jobs(store: Store) -> None:
    """Take jobs that have nothing left to do out of a cluster's queue."""
    submissions = [one for one in store.open_submissions() if one.executor == "slurm"]
    if submissions:
        wanted = {row.submission_id for row in store.states(store.find("state=submitted,running")).values()}
        for one in submissions:
            if one.id not in wanted:
                job.withdraw(Path(one.folder))
                with contextlib.suppress(slurm.NoAnswerError):  # they end when they begin
                    slurm.cancel(job.name(one.id))


def _call_back(directory: RunDirectory) -> None:
    (directory.path / CANCELLED).unlink(missing_ok=True)
