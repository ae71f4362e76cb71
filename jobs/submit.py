"""Handing the queue to workers without waiting for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from db.store import Store
from harness.settings import Settings
from jobs import executors, places, slurm
from jobs.dispatch import Plan, dispatch
from jobs.profile import load_profile, profiles_for_trials


def by_profile(store: Store, ids: Sequence[str], plan: Plan, name: str | None) -> Iterator[tuple[list[str], Plan]]:
    """Trials grouped by what they need, each group with the plan to start it.

    Args:
        store: the database.
        ids: queued trials.
        plan: how to start them.
        name: of the profile for all of them; None: each trial has the first profile that is for it, or "default".

    Raises:
        InputError: a profile is needed and not there, or wrong.
    """
    if plan.executor != "slurm":
        if ids:
            yield list(ids), plan
        return
    left = dict.fromkeys(ids)
    named = load_profile(name) if name is not None else None
    for profile in profiles_for_trials().values() if named is None else ():
        group = [id for id in store.find(f"queued {profile.trials}") if id in left]
        if group:
            yield group, replace(plan, profile=profile)
        for id in group:
            del left[id]
    if left:
        yield list(left), replace(plan, profile=named or load_profile("default"))


def submit_all(store: Store, settings: Settings, ids: Sequence[str], plan: Plan) -> str:
    """Start what can be started; returns a line that says what was.

    A cluster that takes no whole array more, as there may only be so many jobs, is given half of it, and so on.

    Raises:
        InputError: see `jobs.dispatch.dispatch`; not for what `sbatch` refuses after it has taken some.
    """
    trials = workers = 0
    refused: slurm.RefusedError | None = None
    made: set[str] = set()
    while True:
        try:
            done = dispatch(store, settings, ids, plan, made)
        except slurm.RefusedError as error:
            jobs = plan.most or min(-(-len(ids) // plan.pack), slurm.largest_array())
            if error.full and jobs > 1:
                plan = replace(plan, most=jobs // 2)
                continue
            if not trials:
                raise
            refused = error
            break
        if done is None:
            break
        trials += len(done.trials)
        workers += done.workers
        if plan.executor == "local":
            break
        given = set(done.trials)
        ids = [id for id in ids if id not in given]
        if (
            plan.most is not None and plan.most > 1
        ):  # twice as many were one too many: what is left has no place for all
            plan = replace(plan, most=plan.most // 2)
        if plan.throttle:  # which holds within an array
            plan = replace(plan, after=done.job)
    if refused is not None:
        return f"{trials} trials were given to {workers} jobs, {len(ids)} wait ({refused}); later: dropbench submit"
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
        hours = jobs * plan.profile.gpu_hours
        arrays = -(-jobs // largest)
        told = f"{len(ids)} trials in {jobs} jobs of this kind, {arrays} array{'s' * (arrays > 1)}"
        return f"{executor.script(min(jobs, largest))}\n# {told}; at most {hours:.1f} GPU-hours"
    free = plan.parallel - places.taken(settings.runs) if plan.executor == "local" else 1
    return f"{len(ids)} trials would be given to {max(0, min(free, len(ids)))} workers ({plan.executor})"
