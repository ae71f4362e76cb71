"""From the queue to jobs. What is claimed is written down before anything starts, so that no crash doubles a job."""

from __future__ import annotations

import contextlib
import math
import os
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from db.rows import chunks
from db.store import BULK, Store, SubmissionRow
from harness.errors import InputError
from harness.files import synced_together
from harness.rundir import RunDirectory
from harness.settings import Settings
from jobs import executors, job, machine, places, retry, slurm
from jobs.attempts import sweep
from jobs.worker import Worker

if TYPE_CHECKING:
    from jobs.places import Place
    from jobs.profile import Profile

FEW = 20
"""Trials whose files are waited for one by one: to wait for all that is on its way to a disk takes as long."""


@dataclass(frozen=True)
class Plan:
    """How jobs are started.

    Attributes:
        executor: local, debug or slurm.
        parallel: local workers at a time, those of all command lines together.
        threads: CPU threads a local worker.
        profile: what to ask a cluster for.
        throttle: jobs of an array at a time; None: as many as the cluster gives.
        pack: trials a job, one after the other.
        most: jobs of an array; None: as many as the cluster allows.
        after: number of the array whose end the next one waits for.
        again: somebody looks again later: where places are taken, leave their share of the trials for then.
    """

    executor: str = "local"
    parallel: int = 1
    threads: int = 0
    profile: Profile | None = None
    throttle: int | None = None
    pack: int = 1
    most: int | None = None
    after: str | None = None
    again: bool = False


@dataclass(frozen=True)
class Dispatched:
    """A submission that was made: its id, its trials, how many workers share them, and what its executor calls it."""

    submission: str
    trials: list[str]
    workers: int
    job: str | None = None


def dispatch(
    store: Store, settings: Settings, ids: Sequence[str], plan: Plan, made: set[str] | None = None
) -> Dispatched | None:
    """Start jobs for those of `ids` that are queued, as far as there are places; with `debug`, run one of them here.

    Args:
        store: the queue.
        settings: what the workers are given.
        ids: trials.
        plan: how jobs are started.
        made: of a cluster: trials whose run directories the caller has had made a moment ago, for jobs that were
            refused; those that are made here are added.

    Returns:
        None where there was nothing to start, or no place.

    Raises:
        InputError: nothing can be written, or the executor refuses; the trials stay in the queue.
    """
    most = (plan.most or slurm.largest_array()) * plan.pack if plan.executor == "slurm" else len(ids)
    queued = _queued(store, settings, ids, most)
    if not queued:
        return None
    places.check_writable(settings.runs)
    id = uuid.uuid4().hex
    folder = places.home(settings.runs).absolute() / id
    submission = SubmissionRow(id=id, executor=plan.executor, folder=str(folder), host=gethostname(), pid=os.getpid())
    if plan.executor == "slurm":
        return _start_slurm(store, settings, queued, plan, submission, set() if made is None else made)
    start = {"local": _start_local, "debug": _start_debug}[plan.executor]
    return start(store, settings, queued, plan, submission)


def _start_local(
    store: Store, settings: Settings, queued: list[str], plan: Plan, submission: SubmissionRow
) -> Dispatched | None:
    """Workers in the background, which share the trials among themselves."""
    claimed: list[str] = []
    numbers: list[str] = []
    with places.keeper(settings.runs):
        held = places.take(settings.runs, submission.id, len(queued), plan.parallel)
        try:
            if held:
                share = len(held) / min(len(queued), plan.parallel) if plan.again else 1.0
                claimed = _claim(store, settings, queued[: math.ceil(share * len(queued))], submission)
            devices = machine.visible_devices() if settings.device != "cpu" else []
            settings = replace(settings, threads=plan.threads)
            for place in held[: len(claimed)]:
                worker = _worker(settings, claimed, submission, place=place)
                numbers.append(executors.start_local(worker, place, plan.threads, devices))
            if claimed:
                store.submitted(submission.id, ",".join(numbers))
        finally:
            for place in held:
                place.close()
            if not claimed:
                places.clear(settings.runs, submission.id)
    return Dispatched(submission.id, claimed, len(numbers)) if claimed else None


def _start_debug(
    store: Store, settings: Settings, queued: list[str], plan: Plan, submission: SubmissionRow
) -> Dispatched | None:
    """The first trial in this process; the keeper's lock is not held meanwhile, the place is."""
    with places.keeper(settings.runs):
        (place,) = places.take(settings.runs, submission.id, 1, places.taken(settings.runs) + 1)
        claimed = _claim(store, settings, queued[:1], submission)
    try:
        if not claimed:
            return None
        store.submitted(submission.id, None)
        executors.run_here(_worker(settings, claimed, submission, terminal=True))
    finally:
        place.close()
    return Dispatched(submission.id, claimed, 1)


def _start_slurm(
    store: Store, settings: Settings, queued: list[str], plan: Plan, submission: SubmissionRow, made: set[str]
) -> Dispatched | None:
    """An array of jobs; should this process die on the way, they are found by their name."""
    assert plan.profile is not None
    folder, name = Path(submission.folder), job.name(submission.id)
    queued, shunned = _alike(settings, queued)
    executor = executors.ArrayExecutor(
        folder,
        plan.profile,
        name,
        throttle=plan.throttle,
        after=plan.after,
        exclude=shunned if shunned and slurm.nodes(plan.profile.partition) - shunned else (),
    )
    settings = replace(settings, threads=plan.profile.cpus)
    with places.keeper(settings.runs):
        claimed = _claim(store, settings, queued, submission, made)
        if not claimed:
            return None
        made.update(claimed)
        packs = list(chunks(claimed, plan.pack))
        try:
            job.write_elements(folder, packs)
            number = executors.start_slurm([_worker(settings, pack, submission) for pack in packs], executor)
        except BaseException as error:
            view = slurm.look([(name, None)])
            if view.answered and not view.alive(name):
                job.withdraw(folder)
                store.set_states(dict.fromkeys(claimed, ("queued", None)), only_from={"submitted"})
                store.end_submission(submission.id)
            if not isinstance(error, slurm.NoAnswerError):
                raise
            if not view.answered:
                lost = f"{error}; whether {len(packs)} jobs '{name}' are there is not known"
                raise InputError(f"{lost}: dropbench collect finds out when SLURM answers again") from None
            if name not in view.numbers:
                raise slurm.RefusedError(f"sbatch refuses: {error}", full=error.full) from None
            number = view.numbers[name]
        store.submitted(submission.id, number)
    return Dispatched(submission.id, claimed, len(packs), number)


def _alike(settings: Settings, queued: Sequence[str]) -> tuple[list[str], frozenset[str]]:
    """Those of the trials that shun the same nodes as the first one, and these nodes."""
    shunned = {id: retry.shunned(RunDirectory(settings.runs / id).attempts()) for id in queued}
    return [id for id in queued if shunned[id] == shunned[queued[0]]], shunned[queued[0]]


def _queued(store: Store, settings: Settings, ids: Sequence[str], most: int) -> list[str]:
    """The first of the trials that wait, and so many at most, without looking at all that come behind."""
    found: list[str] = []
    for part in chunks(ids, min(BULK, most)):
        waiting = (id for id, row in store.states(part).items() if row.state == "queued")
        # A worker that this database does not know of may be at one of them.
        found += islice((id for id in waiting if not _busy(settings, id)), most - len(found))
        if len(found) == most:
            break
    return found


def _busy(settings: Settings, id: str) -> bool:
    directory = RunDirectory(settings.runs / id)
    return directory.path.exists() and directory.locked()


def _claim(
    store: Store, settings: Settings, ids: Sequence[str], submission: SubmissionRow, made: Collection[str] = ()
) -> list[str]:
    """Make the folders but those that are `made`, then the claim; what is claimed has its run directory."""
    Path(submission.folder).mkdir(parents=True, exist_ok=True)
    to_make = [id for id in ids if id not in made]
    suites = store.suites(to_make)
    with synced_together(settings.runs) if len(to_make) > FEW else contextlib.nullcontext():
        for id, trial in store.trials(to_make).items():
            directory = RunDirectory.create(settings.runs, trial)
            with directory.lock() as free:
                if free:
                    sweep(directory.path)
            directory.add_suites(suites.get(id, []))
    return store.intend(ids, submission)


def _worker(settings: Settings, ids: Sequence[str], submission: SubmissionRow, **rest: Any) -> Worker:
    place: Place | None = rest.pop("place", None)
    return Worker(
        [str(settings.runs.absolute() / id) for id in ids],
        settings.to_payload(),
        submission=submission.id,
        folder=submission.folder,
        executor=submission.executor,
        place=str(place.path.absolute()) if place else None,
        since=submission.created_at,
        **rest,
    )
