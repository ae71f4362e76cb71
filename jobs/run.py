"""The run loop: ask for trials, start workers as places get free, take over what they find, until all is done.

It may be killed at any moment: what it knows is in the database and the run directories, and its workers go on.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname

from db.store import Store, SubmissionRow, TrialRow
from harness.settings import Settings
from harness.suite import Cell
from harness.trial import FINAL_STATES, Trial
from jobs import places
from jobs.collect import collect
from jobs.dispatch import Plan, dispatch
from jobs.progress import Progress
from jobs.queue import enqueue, revive
from jobs.search import Searches
from jobs.wishes import STOP

PAUSE = 0.2
"""Seconds between two looks at the run directories."""

FAREWELL = 5.0
"""Seconds that workers have to end when all is done; they need a fraction of one."""


@dataclass
class Outcome:
    """What became of the trials that were asked for.

    Attributes:
        rows: the trials, as the database has them now.
        trained: how many were not done before.
        interrupted: whether Ctrl-C ended it.
    """

    rows: dict[str, TrialRow]
    trained: int = 0
    interrupted: bool = False

    def of(self, *states: str) -> list[TrialRow]:
        """The rows in these states."""
        return [row for row in self.rows.values() if row.state in states]


def run(
    store: Store,
    settings: Settings,
    items: Sequence[tuple[Trial, str | None]],
    plan: Plan,
    searched: Sequence[Cell] = (),
) -> Outcome:
    """Run trials to their end on this machine.

    Args:
        store: the database.
        settings: where the runs and the data are.
        items: the trials, each with its suite.
        plan: how jobs are started.
        searched: cells whose trials are asked for as results come in.

    Raises:
        InputError: the database or the runs folder cannot be written; what runs already goes on.
    """
    plan = replace(plan, again=True)
    trials = {trial.id: trial for trial, _ in items}
    searches = Searches(store, settings, searched, trials)
    enqueue(store, settings, items)
    revive(store, list(trials))
    collect(store, settings)
    trials |= searches.ask()
    rows = store.states(list(trials))
    done = {id for id, row in rows.items() if row.state in FINAL_STATES}
    outcome = Outcome(rows, trained=len(trials) - len(done))
    if outcome.trained:
        places.check_writable(settings.runs)
        with Progress(settings.runs, trials, done, bars=plan.executor != "debug") as progress:
            try:
                _until_done(store, settings, trials, plan, progress, searches)
                _see_off(store, settings)
            except KeyboardInterrupt:
                outcome.interrupted = True
                jobs = _ask_to_stop(store, list(trials))
                with contextlib.suppress(KeyboardInterrupt):
                    progress.say("stopping: the workers write their checkpoints (Ctrl-C again leaves them to it)")
                    _wait(settings, jobs)
                    collect(store, settings)
        outcome.trained += len(trials) - len(rows)
        outcome.rows = store.states(list(trials))
    return outcome


def _until_done(
    store: Store, settings: Settings, trials: dict[str, Trial], plan: Plan, progress: Progress, searches: Searches
) -> None:
    told = False
    while True:
        began = time.monotonic()
        collect(store, settings)
        if more := searches.ask():
            trials |= more
            progress.add(more, searches.unasked)
        rows = store.states(list(trials))
        progress.update(rows)
        left = {row.state for row in rows.values()} - FINAL_STATES
        if not left:
            return
        if dispatch(store, settings, [id for id, row in rows.items() if row.state == "queued"], plan) is None:
            if left == {"queued"} and not told:
                progress.say(f"waiting: all {plan.parallel} places are taken by workers of other command lines")
                told = True
            # However many the trials, looking at them takes a tenth of a core at most.
            time.sleep(max(PAUSE, 9 * (time.monotonic() - began)))


def _see_off(store: Store, settings: Settings) -> None:
    """Let workers of this process that have nothing left to do end, so that nothing is open when it ends itself."""
    _wait(settings, [job for job in store.open_submissions() if _is_mine(job)], FAREWELL)
    collect(store, settings)


def _ask_to_stop(store: Store, ids: Sequence[str]) -> list[SubmissionRow]:
    """Ask the workers of this process, and those that a killed one left at these trials, to stop; Ctrl-C waits."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        at_work = {row.submission_id for row in store.states(ids).values()}
        jobs = [job for job in store.open_submissions() if _is_mine(job) or (job.id in at_work and _is_orphan(job))]
        for job in jobs:
            (Path(job.folder) / STOP).touch()
    finally:
        signal.signal(signal.SIGINT, handler)
    return jobs


def _wait(settings: Settings, jobs: Sequence[SubmissionRow], patience: float = math.inf) -> None:
    end = time.monotonic() + patience
    while any(places.alive(settings.runs, job.id) for job in jobs) and time.monotonic() < end:
        time.sleep(PAUSE / 4)


def _is_mine(job: SubmissionRow) -> bool:
    return (job.host, job.pid) == (gethostname(), os.getpid())


def _is_orphan(job: SubmissionRow) -> bool:
    if job.host != gethostname() or job.executor == "slurm":
        return False
    try:
        os.kill(job.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
