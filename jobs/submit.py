"""Handing the queue to workers without waiting for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from db.store import Store
from harness.settings import Settings
from jobs import executors, places, slurm
from jobs.dispatch import Plan, dispatch


def submit_all(store: Store, settings: Settings, ids: Sequence[str], plan: Plan) -> str:
    """Start what can be started; returns a line that says what was.

    Raises:
        InputError: see `jobs.dispatch.dispatch`.
    """
    trials = workers = 0
    while (done := dispatch(store, settings, ids, plan)) is not None:
        trials += len(done.trials)
        workers += done.workers
        if plan.executor == "local":
            break
        if plan.throttle:  # which holds within an array
            plan = replace(plan, after=done.job)
    if not trials:
        return f"all {plan.parallel} places are taken: {len(ids)} trials wait; later: dropbench submit"
    if plan.executor == "debug":
        return f"{trials} trials were run here; to see how they ended: dropbench collect, dropbench status"
    kind = "workers" if plan.executor == "local" else "jobs"
    return f"{trials} trials were given to {workers} {kind}; to follow them: dropbench watch"


def preview(settings: Settings, ids: Sequence[str], plan: Plan) -> str:
    """What `submit_all` would start."""
    if plan.executor == "slurm":
        assert plan.profile is not None
        folder = places.home(settings.runs).absolute() / "dry-run"
        jobs = -(-len(ids) // plan.pack)
        largest = slurm.largest_array()
        executor = executors.ArrayExecutor(folder, plan.profile, "dropbench", throttle=plan.throttle, after=plan.after)
        hours = jobs * plan.profile.gpus * plan.profile.time / 60
        arrays = -(-jobs // largest)
        told = f"{len(ids)} trials in {jobs} jobs of this kind, {arrays} array{'s' * (arrays > 1)}"
        return f"{executor.script(min(jobs, largest))}\n# {told}; at most {hours:.1f} GPU-hours"
    free = plan.parallel - places.taken(settings.runs) if plan.executor == "local" else 1
    return f"{len(ids)} trials would be given to {max(0, min(free, len(ids)))} workers ({plan.executor})"
