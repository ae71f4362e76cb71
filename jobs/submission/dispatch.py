"""From the queue to jobs. Claims are stored before anything starts, so that no crash submits a trial twice."""

from __future__ import annotations

import contextlib
import math
import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from dropbench.db.store.rows import chunks
from dropbench.db.store.store import BULK, Store, SubmissionRow
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import synced_together
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.source import code_digest, require_unchanged
from dropbench.harness.trials.plugins import keep_plugins
from dropbench.jobs.submission.local import LocalWorkers, run_debug
from dropbench.jobs.submission.submission import job_name, revoke, write_elements
from dropbench.jobs.worker import process_group, retry, slots
from dropbench.jobs.worker.attempt import checkpoint_step
from dropbench.jobs.worker.worker import Worker

if TYPE_CHECKING:
    from dropbench.jobs.slurm.profile import Profile

MAX_SEPARATE_SYNCS = 20
"""Trials whose files are synced one by one; for more, one sync of the whole file system is quicker."""


@dataclass(frozen=True)
class Plan:
    """The options by which jobs are started.

    Attributes:
        executor: local, debug or slurm.
        parallel: maximum number of local workers, counting those of other command lines.
        threads: CPU threads per process of a local worker; 0: torch's default.
        processes: processes of a local worker, which train each trial together.
        profile: the resources to request from a cluster.
        throttle: maximum number of an array's jobs that run at a time; None: no limit.
        max_array_size: maximum number of jobs per array; None: the cluster's limit.
        after: id of the array that has to end before this one starts.
        workers: starts local workers of a caller that dispatches again when slots become free; None: this is the only
            dispatch, which makes its own.
    """

    executor: str = "local"
    parallel: int = 1
    threads: int = 0
    processes: int = 1
    profile: Profile | None = None
    throttle: int | None = None
    max_array_size: int | None = None
    after: str | None = None
    workers: LocalWorkers | None = None

    @property
    def max_trials_per_job(self) -> int:
        """The number of trials per job: at least those that run side by side."""
        return max(self.profile.trials_per_job, self.profile.trials_at_a_time) if self.profile else 1


@dataclass(frozen=True)
class Dispatched:
    """A new submission: its id, its trials, how many workers share them, and the executor's id of its jobs.

    `other_code` are those of the trials that continue from a checkpoint of other code.
    """

    submission: str
    trials: list[str]
    workers: int
    job_id: str | None = None
    other_code: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return a line on trials that continue from checkpoints of other code, if there are any."""
        if not self.other_code:
            return []
        count = count_of(len(self.other_code), "trial")
        return [f"{count} half trained by other code continue: see `dropbench logs {self.other_code[0]}`"]


def dispatch(
    store: Store, settings: Settings, ids: Sequence[str], plan: Plan, created: set[str] | None = None
) -> Dispatched | None:
    """Start jobs for the queued trials among `ids`, as far as slots are free; with `debug`, run one of them here.

    On a cluster, `created` are the trials whose run directories were created for jobs that were then refused; this call
    adds those that it creates. Return None if there is nothing to start or no free slot.

    Raises:
        InputError: nothing can be written, the executor refuses, a version of a plug-in is missing, or the package has
            changed on disk since this process started; the trials stay queued.
    """
    max_trials = len(ids)
    if plan.executor == "slurm":
        from dropbench.jobs.slurm import client

        max_trials = (plan.max_array_size or client.max_array_size()) * plan.max_trials_per_job
    queued = _queued(store, settings, ids, max_trials)
    if not queued:
        return None
    require_unchanged()
    slots.check_writable(settings.runs)
    others = [id for id in queued if _has_other_code(Runs(settings.runs)[id])]
    id = uuid.uuid4().hex
    folder = slots.jobs_folder(settings.runs).absolute() / id
    submission = SubmissionRow(id=id, executor=plan.executor, folder=str(folder), host=gethostname(), pid=os.getpid())
    if plan.executor == "slurm":
        done = _start_slurm(store, settings, queued, plan, submission, set() if created is None else created)
    else:
        start = {"local": _start_local, "debug": _start_debug}[plan.executor]
        done = start(store, settings, queued, plan, submission)
    return done and replace(done, other_code=tuple({*others} & {*done.trials}))


def _start_local(
    store: Store, settings: Settings, queued: list[str], plan: Plan, submission: SubmissionRow
) -> Dispatched | None:
    """Start background workers, which share the trials among themselves."""
    claimed: list[str] = []
    started = 0
    with slots.dispatch_lock(settings.runs):
        acquired = slots.acquire(settings.runs, submission.id, len(queued), plan.parallel)
        try:
            if acquired:
                share = len(acquired) / min(len(queued), plan.parallel) if plan.workers else 1.0
                claimed = _claim(store, settings, queued[: math.ceil(share * len(queued))], submission)
            if claimed:
                first = store.trials(claimed[: len(acquired)]).values()
                devices = process_group.visible_devices(settings.device)
                share = process_group.share_of_device(plan.parallel * plan.processes, len(devices))
                settings = replace(settings, threads=plan.threads, gpu_share=share)
                kinds = store.kinds(claimed)
                with contextlib.ExitStack() as stack:
                    workers = plan.workers or stack.enter_context(local_workers(settings, plan))
                    for slot in acquired[: len(claimed)]:
                        worker = _worker(settings, claimed, submission, kinds, slot)
                        workers.start(replace(worker, processes=plan.processes), slot, first)
                        started += 1
                store.submitted(submission.id, None)
        finally:
            for slot in acquired:
                slot.close()
            if not claimed:
                slots.remove_slots(settings.runs, submission.id)
    return Dispatched(submission.id, claimed, started) if claimed else None


def local_workers(settings: Settings, plan: Plan) -> LocalWorkers:
    """Return what starts the workers of a plan on this machine."""
    return LocalWorkers(settings.runs, plan.threads, process_group.visible_devices(settings.device))


def _start_debug(
    store: Store, settings: Settings, queued: list[str], plan: Plan, submission: SubmissionRow
) -> Dispatched | None:
    """Run the first trial in this process, holding a slot but not the dispatch lock."""
    with slots.dispatch_lock(settings.runs):
        (slot,) = slots.acquire(settings.runs, submission.id, 1, slots.count_workers(settings.runs) + 1)
        claimed = _claim(store, settings, queued[:1], submission)
    try:
        if claimed:
            store.submitted(submission.id, None)
            run_debug(_worker(replace(settings, threads=plan.threads), claimed, submission, {}))
    finally:
        slot.close()
    return Dispatched(submission.id, claimed, 1) if claimed else None


def _start_slurm(
    store: Store, settings: Settings, queued: list[str], plan: Plan, submission: SubmissionRow, created: set[str]
) -> Dispatched | None:
    """Submit an array of jobs. If this process dies meanwhile, they are found by their name."""
    from dropbench.jobs.slurm import client
    from dropbench.jobs.slurm.array_executor import ArrayExecutor
    from dropbench.jobs.slurm.job_states import query_jobs

    assert plan.profile is not None
    folder, name = Path(submission.folder), job_name(submission.id)
    # All jobs of an array exclude the same nodes, but never all nodes.
    excluded = {id: retry.excluded_nodes(Runs(settings.runs)[id].attempts()) for id in queued}
    nodes = excluded[queued[0]]
    queued = [id for id in queued if excluded[id] == nodes]
    known = client.list_nodes(plan.profile.partition) if nodes else set()  # names in run directories may be forged
    exclude = ",".join(sorted(nodes & known)) if known - nodes else ""
    executor = ArrayExecutor(folder, plan.profile, name, throttle=plan.throttle, after=plan.after, exclude=exclude)
    device = "cuda" if plan.profile.gpus and settings.device == "auto" else settings.device  # fails without its GPUs
    settings = replace(settings.on_node(plan.profile.environment), threads=plan.profile.cpus, device=device)
    with slots.dispatch_lock(settings.runs):
        claimed = _claim(store, settings, queued, submission, created)
        if not claimed:
            return None
        created.update(claimed)
        packs = list(chunks(claimed, plan.max_trials_per_job))
        try:
            write_elements(folder, packs)
            kinds = store.kinds(claimed)
            workers = [_worker(settings, trial_ids, submission, kinds) for trial_ids in packs]
            for worker in workers:
                worker.trials_at_a_time = min(plan.profile.trials_at_a_time, len(worker.directories))
            submitted = executor.submit_array(workers)
            job_id = str(submitted[0].job_id).partition("_")[0]
        except BaseException as error:
            jobs = query_jobs([(name, None)])
            gone = not jobs.alive(name)  # squeue lists arrays that sbatch refuses, too, as FAILED
            if gone:
                revoke(folder)
                store.set_states(dict.fromkeys(claimed, ("queued", None)), only_from={"submitted"})
                store.end_submission(submission.id)
            if not isinstance(error, client.SlurmCommandError):
                raise
            if not jobs.answered:
                unknown = f"{error}; {len(packs)} jobs '{name}' may have been submitted"
                raise InputError(f"{unknown}: run `dropbench status` when SLURM answers again") from None
            if gone:
                raise client.SubmissionRefusedError(f"sbatch refuses: {error}") from None
            job_id = jobs.job_ids[name]
        store.submitted(submission.id, job_id)
    return Dispatched(submission.id, claimed, len(packs), job_id)


def _queued(store: Store, settings: Settings, ids: Sequence[str], max_trials: int) -> list[str]:
    """Return the first `max_trials` queued trials, without reading the rest."""
    trials: list[str] = []
    for chunk in chunks(ids, min(BULK, max_trials)):
        queued = (id for id, row in store.states(chunk).items() if row.state == "queued")
        # A worker that this database does not know may run one of them.
        trials += islice((id for id in queued if not _is_locked(store, settings, id)), max_trials - len(trials))
        if len(trials) == max_trials:
            break
    return trials


def _has_other_code(directory: RunDirectory) -> bool:
    """Return whether a trial has a checkpoint of other code than this."""
    attempts = directory.attempts() if checkpoint_step(directory) else []
    return bool(attempts) and attempts[-1].get("code") != code_digest()


def _is_locked(store: Store, settings: Settings, id: str) -> bool:
    """Return whether a worker holds the trial; it counts as held, and fails, if its run directory is damaged."""
    directory = Runs(settings.runs)[id]
    try:
        directory.attempts()  # the worker needs them
        return directory.path.exists() and directory.locked()
    except InputError as error:
        return bool(store.set_states({id: ("failed", str(error))}, only_from={"queued"}))


def _claim(
    store: Store, settings: Settings, ids: Sequence[str], submission: SubmissionRow, created: Collection[str] = ()
) -> list[str]:
    """Create the run directories except those in `created`, then claim the trials; return the claimed ones."""
    Path(submission.folder).mkdir(parents=True, exist_ok=True)
    missing = [id for id in ids if id not in created]
    with synced_together(settings.runs) if len(missing) > MAX_SEPARATE_SYNCS else contextlib.nullcontext():
        trials = store.trials(missing).values()
        keep_plugins(trials, settings.runs)
        for trial in trials:
            with contextlib.suppress(InputError):  # the worker skips damaged directories, and `collect` fails them
                RunDirectory.create(settings.runs, trial)
    return store.intend(ids, submission)


def _worker(
    settings: Settings,
    ids: Sequence[str],
    submission: SubmissionRow,
    kinds: Mapping[str, str],
    slot: slots.WorkerSlot | None = None,
) -> Worker:
    return Worker(
        [str(settings.runs.absolute() / id) for id in ids],
        settings.to_payload(),
        submission=submission.id,
        folder=submission.folder,
        executor=submission.executor,
        slot_file=str(slot.path.absolute()) if slot else None,
        submitted_at=submission.created_at,
        terminal=submission.executor == "debug",
        kinds=[kinds.get(id, "") for id in ids],
    )
