"""Submit queued trials to workers without waiting for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dropbench.db.store.store import Store
from dropbench.harness.errors import count_of
from dropbench.harness.settings import Settings
from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.array_executor import ArrayExecutor
from dropbench.jobs.slurm.profile import FILE, Profile, load_profile, load_profiles
from dropbench.jobs.submission.cost import Estimate, trials_to_probe
from dropbench.jobs.submission.dispatch import Plan, dispatch
from dropbench.jobs.worker import slots

PROBE_MINUTES = 30
"""Time limit of a job that probes a trial, so that the cluster fits it in between longer ones."""

RETRY_DELAYS_S = 2.0, 8.0, 30.0
"""Seconds before sbatch is called again after it did not reach the controller."""

MIN_MEMORY_GB = 2.0
"""Memory of a job if the cluster's default is less: torch and a small trial need about 0.5 GB."""


@dataclass(frozen=True)
class Submitted:
    """The trials of one group that were submitted.

    Attributes:
        plan: how they were started.
        trials: number of submitted trials.
        workers: number of jobs or local workers that share them.
        queued: number of trials that are still queued.
        refusal: why the cluster accepted no more jobs, or None.
        notes: lines on trials that continue from checkpoints of other code.
    """

    plan: Plan
    trials: int
    workers: int
    queued: int
    refusal: str | None = None
    notes: tuple[str, ...] = ()

    def render(self) -> str:
        """Return a line that reports them."""
        queued = f"{count_of(self.queued, 'trial')} still queued"
        if not self.trials:
            slots_in_use = f"All worker slots ({self.plan.parallel}) are in use"
            return f"{slots_in_use}, {queued}: run `dropbench submit` again later."
        trials = count_of(self.trials, "trial")
        if self.plan.executor == "debug":
            return f"Ran {trials} in this process: run `dropbench status`."
        workers = count_of(self.workers, "worker" if self.plan.executor == "local" else "job")
        report = f"Submitted {trials} to {workers}"
        if self.refusal is not None:
            return f"{report}, {queued} ({self.refusal}): run `dropbench submit` again later."
        return f"{report}. Follow them with `dropbench status --watch`."

    def to_json(self) -> dict[str, Any]:
        """Return the numbers, the executor and the refusal."""
        numbers = {"trials": self.trials, "workers": self.workers, "queued": self.queued}
        return {"executor": self.plan.executor, **numbers, "refusal": self.refusal}


def default_profile() -> Profile:
    """Return the resources of a job if there is no file of profiles: the cluster's defaults, with enough memory."""
    memory = client.default_memory()
    return Profile(memory=MIN_MEMORY_GB if memory is not None and memory < MIN_MEMORY_GB else None)


def describe_defaults(profile: Profile) -> str:
    """Return a line about `default_profile`."""
    memory = f", {profile.memory:g} GB" if profile.memory else " and memory"
    return (
        f"No {FILE}: each job requests the cluster's default partition{memory}, "
        f"{count_of(profile.cpus, 'CPU core')}, no GPU and {profile.time} minutes; "
        "a table [profiles.default] in it changes them."
    )


def group_by_profile(
    store: Store, ids: Sequence[str], plan: Plan, name: str | None
) -> Iterator[tuple[list[str], Plan]]:
    """Group queued trials by their cluster profile; yield each group with its plan.

    Without a profile `name`, each trial gets the first profile whose filter it matches, or "default"; without a file
    of profiles, the cluster's defaults.

    Raises:
        InputError: a profile is missing or invalid.
    """
    if plan.executor != "slurm":
        if ids:
            yield list(ids), plan
        return
    if name is None and not FILE.exists():
        if ids:
            yield list(ids), replace(plan, profile=default_profile())
        return
    ungrouped = dict.fromkeys(ids)
    named = load_profile(name) if name is not None else None
    for profile in load_profiles().values() if named is None else ():
        if profile.trials is None:
            continue
        group = [id for id in store.find(f"queued {profile.trials}") if id in ungrouped]
        if group:
            yield group, replace(plan, profile=profile)
        for id in group:
            del ungrouped[id]
    if ungrouped:
        yield list(ungrouped), replace(plan, profile=named or load_profile("default"))


def probes(store: Store, groups: Sequence[tuple[list[str], Plan]]) -> list[tuple[list[str], Plan]]:
    """Return the trials that measure unknown costs, one of each kind, to be run in short jobs."""
    probed = []
    for group, plan in groups:
        if plan.profile is not None and (ids := trials_to_probe(store, group, plan.profile)):
            one_each = {"time": min(plan.profile.time, PROBE_MINUTES), "trials_per_job": 1, "trials_at_a_time": 1}
            probed.append((ids, replace(plan, profile=plan.profile.model_copy(update=one_each))))
    return probed


def submit(store: Store, settings: Settings, ids: Sequence[str], plan: Plan) -> Submitted:
    """Start as many trials as possible.

    If the cluster refuses an array because of its limit of jobs, submit half of it, and so on. If its controller is not
    reached, try again after some seconds.

    Raises:
        InputError: see `dropbench.jobs.submission.dispatch.dispatch`; not if `sbatch` has accepted some trials before
            it refuses.
    """
    trials = workers = 0
    delays, job_limit_reached = iter(RETRY_DELAYS_S), False
    refusal: client.SubmissionRefusedError | None = None
    created: set[str] = set()
    notes: list[str] = []
    while True:
        try:
            done = dispatch(store, settings, ids, plan, created)
        except client.SubmissionRefusedError as error:
            jobs = plan.max_array_size or min(-(-len(ids) // plan.max_trials_per_job), client.max_array_size())
            if (error.job_limit_reached or error.array_too_long) and jobs > 1:
                plan, job_limit_reached = replace(plan, max_array_size=jobs // 2), error.job_limit_reached
                continue
            if error.temporary and (delay := next(delays, None)) is not None:
                client.sleep(delay)
                continue
            if not trials:
                raise
            refusal = error
            break
        if done is None:
            break
        trials += len(done.trials)
        workers += done.workers
        notes += done.notes()
        submitted = set(done.trials)
        ids = [id for id in ids if id not in submitted]
        if plan.executor == "local":
            break
        if job_limit_reached and plan.max_array_size is not None and plan.max_array_size > 1:
            # Twice as many were refused, so the rest of them does not fit.
            plan = replace(plan, max_array_size=plan.max_array_size // 2)
        if plan.throttle:  # it applies within an array
            plan = replace(plan, after=done.job_id)
    return Submitted(plan, trials, workers, len(ids), None if refusal is None else str(refusal), (*notes,))


def preview(settings: Settings, ids: Sequence[str], plan: Plan, cost: Estimate | None) -> str:
    """Return a description of what `submit` would start; for SLURM, the script and its `cost`."""
    trials = count_of(len(ids), "trial")
    if plan.executor == "slurm":
        assert plan.profile is not None
        folder = slots.jobs_folder(settings.runs).absolute() / "dry-run"
        jobs = -(-len(ids) // plan.max_trials_per_job)
        max_array_size = client.max_array_size()
        executor = ArrayExecutor(folder, plan.profile, "dropbench", throttle=plan.throttle, after=plan.after)
        counts = f"{trials} in {count_of(jobs, 'job')}, {count_of(-(-jobs // max_array_size), 'array')}"
        lines = [counts, *filter(None, [plan.profile.idle_gpus]), *(cost.lines() if cost is not None else ())]
        return "\n# ".join([executor.script(min(jobs, max_array_size)), *lines])
    free = plan.parallel - slots.count_workers(settings.runs) if plan.executor == "local" else 1
    return f"Would submit {trials} to {count_of(max(0, min(free, len(ids))), 'worker')} ({plan.executor})."
