"""The loop of `dropbench run`: request trials, start workers as slots become free, collect results, until all are done.

It can be killed at any moment: its state is in the database and the run directories, and its workers continue.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname

from dropbench.db.store.store import Store, SubmissionRow, TrialRow
from dropbench.db.tuning.select import is_pruned
from dropbench.harness.errors import ENQUEUE_AGAIN, count_of
from dropbench.harness.settings import Settings
from dropbench.harness.source import at_start
from dropbench.harness.suites.request import Request
from dropbench.harness.trials.trial import FINAL_STATES, Trial
from dropbench.jobs.queue.operations import requeue_exhausted
from dropbench.jobs.queue.progress_bar import ProgressBar
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.queue.request import Requested
from dropbench.jobs.queue.search import Searches
from dropbench.jobs.submission.dispatch import Plan, dispatch, local_workers
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.stop_requests import STOP_FILE

POLL_INTERVAL_S = 0.2
"""Seconds between two inspections of the run directories."""

MAX_POLL_SHARE = 0.02
"""Share of a core that inspecting the trials takes, however many they are: the workers need the cores."""

DRAIN_S = 5.0
"""Seconds that workers have to exit when all trials are done; they need a fraction of one."""


@dataclass
class RunSummary:
    """The states of the requested trials after a run.

    Attributes:
        rows: the trials, as the database has them now.
        request: the request, as it was stored.
        trained: number of trials that were not done before.
        interrupted: whether Ctrl-C ended the run.
    """

    rows: dict[str, TrialRow]
    request: Request
    trained: int = 0
    interrupted: bool = False

    def in_states(self, *states: str) -> list[TrialRow]:
        """Return the rows in these states."""
        return [row for row in self.rows.values() if row.state in states]

    def failures(self) -> list[str]:
        """Return one line per cause of failed trials, and one with the next command; none if no trial failed."""
        rows = [row for row in self.in_states("failed", "cancelled") if not is_pruned(row)]
        causes: dict[str, list[str]] = {}
        for row in rows:
            causes.setdefault(f"{row.state}: {row.reason or 'cause unknown'}", []).append(row.id)
        lines = []
        for cause, ids in causes.items():
            more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
            lines.append(f"{ids[0]}{more} {cause}; see `dropbench logs {ids[0]}`")
        lost = f"{len(rows)} of {count_of(len(self.rows), 'trial')} failed or cancelled"
        # A trial of changed code, data, weights or plug-ins fails again; this command requests another in its place.
        retry = "" if all(ENQUEUE_AGAIN in (row.reason or "") for row in rows) else self.request.suite.name or "failed"
        first = f"run `dropbench retry {retry}`, then" if retry else "run"
        return [*lines, f"{lost}: {first} this command again."] if rows else []


def run(
    store: Store,
    settings: Settings,
    requested: Requested,
    plan: Plan,
    *,
    left_out: Collection[str] = (),
    bar: type[ProgressBar] = ProgressBar,
) -> RunSummary:
    """Run the trials of a request to their end on this machine; request those of its searches as results come in.

    Trials in `left_out` are part of the request, and are not run.

    Raises:
        InputError: the database or the runs folder cannot be written, or the package has changed on disk; running
            workers continue.
    """
    at_start()
    searches = Searches(store, settings, requested, left_out)
    if plan.executor == "debug":
        return _run(store, settings, searches, plan, bar)
    with local_workers(settings, plan) as workers:
        return _run(store, settings, searches, replace(plan, workers=workers), bar)


def _run(store: Store, settings: Settings, searches: Searches, plan: Plan, bar: type[ProgressBar]) -> RunSummary:
    left_out = searches.left_out
    if plan.workers is not None:
        known = store.states(list(searches.trials))
        unfinished = {id for id in searches.trials if id not in known or known[id].state not in FINAL_STATES}
        if new := [searches.trials[id] for id in unfinished.difference(left_out)]:  # while another core checks them
            plan.workers.prepare(new)
    trials = {id: trial for id, trial in searches.start().items() if id not in left_out}
    requeue_exhausted(store, list(trials))
    collect(store, settings)
    trials |= searches.ask()
    rows = store.states(list(trials))
    done = {id for id, row in rows.items() if row.state in FINAL_STATES}
    summary = RunSummary(rows, searches.request, trained=len(trials) - len(done))
    if summary.trained:
        slots.check_writable(settings.runs)
        with bar(settings.runs, trials, done, bars=plan.executor != "debug") as progress:
            workers = min(1 if plan.executor == "debug" else plan.parallel, summary.trained)
            progress.start(workers, len(summary.in_states("skipped")))
            try:
                _run_until_done(store, settings, trials, plan, progress, searches)
                # Idle workers exit, so that no submission of this process is open when it ends.
                _wait(settings, [row for row in store.open_submissions() if _is_mine(row)], DRAIN_S)
                collect(store, settings)
            except KeyboardInterrupt:
                summary.interrupted = True
                submissions = _request_stop(store, list(trials))
                with contextlib.suppress(KeyboardInterrupt):
                    progress.print_line("Stopping: workers are writing checkpoints (Ctrl-C again: do not wait).")
                    _wait(settings, submissions)
                    collect(store, settings)
        summary.trained += len(trials) - len(rows)
        summary.rows = store.states(list(trials))
    return summary


def _run_until_done(
    store: Store, settings: Settings, trials: dict[str, Trial], plan: Plan, progress: ProgressBar, searches: Searches
) -> None:
    reported_wait = False
    while True:
        start, used_before = time.monotonic(), time.process_time()
        collect(store, settings)
        if new := searches.ask():
            trials |= new
            progress.add(new, searches.remaining)
        rows = store.states(list(trials))
        progress.update(rows)
        open_states = {row.state for row in rows.values()} - FINAL_STATES
        if not open_states:
            return
        done = dispatch(store, settings, [id for id, row in rows.items() if row.state == "queued"], plan)
        for note in done.notes() if done is not None else ():
            progress.print_line(note)
        if done is None:
            if open_states == {"queued"} and not reported_wait:
                progress.print_line(f"Waiting: workers of other command lines use all worker slots ({plan.parallel}).")
                reported_wait = True
            used = time.process_time() - used_before
            interval = max(POLL_INTERVAL_S, used / MAX_POLL_SHARE, time.monotonic() - start)
            _wait_for_news(store, settings, interval)


def _wait_for_news(store: Store, settings: Settings, interval: float) -> None:
    """Wait for the interval, or until the workers of this process have exited: then they are done, or dead."""
    workers = [row for row in store.open_submissions() if _is_mine(row) and slots.is_alive(settings.runs, row.id)]
    time.sleep(POLL_INTERVAL_S)
    if workers:
        _wait(settings, workers, interval - POLL_INTERVAL_S)
    else:
        time.sleep(interval - POLL_INTERVAL_S)


def _request_stop(store: Store, ids: Sequence[str]) -> list[SubmissionRow]:
    """Ask the workers of this process, and orphaned workers of these trials, to stop; defer Ctrl-C meanwhile."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        used = {row.submission_id for row in store.states(ids).values()}
        rows = store.open_submissions()
        submissions = [row for row in rows if _is_mine(row) or (row.id in used and _is_orphaned(row))]
        for row in submissions:
            (Path(row.folder) / STOP_FILE).touch()
    finally:
        signal.signal(signal.SIGINT, handler)
    return submissions


def _wait(settings: Settings, submissions: Sequence[SubmissionRow], timeout: float = math.inf) -> None:
    """Wait until no worker is alive, or for the timeout."""
    deadline = time.monotonic() + timeout
    while any(slots.is_alive(settings.runs, row.id) for row in submissions) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S / 4)


def _is_mine(row: SubmissionRow) -> bool:
    return (row.host, row.pid) == (gethostname(), os.getpid())


def _is_orphaned(row: SubmissionRow) -> bool:
    """Return whether the process that submitted a local submission is dead."""
    if row.host != gethostname() or row.executor == "slurm":
        return False
    try:
        os.kill(row.pid, 0)
    except OSError as error:  # or it is another user's
        return isinstance(error, ProcessLookupError)
    return False
