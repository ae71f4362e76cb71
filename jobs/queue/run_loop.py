"""The loop of `dropbench run`: request trials, start workers as slots become free, collect results, until all are done.

It can be killed at any moment: its state is in the database and the run directories, and its workers continue.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname

from dropbench.db.store.store import Store, SubmissionRow, TrialRow
from dropbench.db.tuning.select import is_pruned
from dropbench.harness.cli.streams import discard_closed_output, output_is_closed
from dropbench.harness.errors import ENQUEUE_AGAIN, count_of
from dropbench.harness.runs.run_directory import Runs
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
        interrupted: the signal that ended the run: SIGINT, SIGTERM, or SIGPIPE if its output was closed; else None.
    """

    rows: dict[str, TrialRow]
    request: Request
    trained: int = 0
    interrupted: signal.Signals | None = None

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


class Terminated(KeyboardInterrupt):
    """SIGTERM has asked this process to end."""


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

    Trials in `left_out` are part of the request, and are not run. After Ctrl-C or SIGTERM, or when the output
    is closed, the workers of this process write checkpoints and end.

    Raises:
        InputError: the database or the runs folder cannot be written, or the package has changed on disk; running
            workers continue.
    """
    at_start()
    searches = Searches(store, settings, requested, left_out)
    with _interrupted_by_sigterm():
        if plan.executor == "debug":
            return _run(store, settings, searches, plan, bar)
        with local_workers(settings, plan) as workers:
            return _run(store, settings, searches, replace(plan, workers=workers), bar)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM act as Ctrl-C. Otherwise it would end this process alone, and the workers would go on unseen."""

    def terminate(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


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
            try:
                progress.start(workers, len(summary.in_states("skipped")))
                _run_until_done(store, settings, trials, plan, progress, searches)
                # Idle workers exit, so that no submission of this process is open when it ends.
                _wait(settings, [row for row in store.open_submissions() if _is_mine(row)], DRAIN_S)
                collect(store, settings)
            except (KeyboardInterrupt, BrokenPipeError) as error:
                summary.interrupted = _signal_of(error)
                submissions = _request_stop(store, list(trials))
                with contextlib.suppress(KeyboardInterrupt):
                    progress.print_line("Stopping: workers are writing checkpoints (Ctrl-C again: do not wait).")
                    _wait(settings, submissions)
                    collect(store, settings)
        summary.trained += len(trials) - len(rows)
        summary.rows = store.states(list(trials))
    return summary


def _signal_of(error: BaseException) -> signal.Signals:
    """Return the signal by which a program that does not handle it would end."""
    if isinstance(error, BrokenPipeError):
        if not output_is_closed():
            raise error
        discard_closed_output()
        return signal.SIGPIPE
    return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT


def _run_until_done(
    store: Store, settings: Settings, trials: dict[str, Trial], plan: Plan, progress: ProgressBar, searches: Searches
) -> None:
    reported_wait = False
    reported = set[tuple[str, int]]()
    while True:
        start, used_before = time.monotonic(), time.process_time()
        collect(store, settings)
        if new := searches.ask():
            trials |= new
            progress.add(new, searches.remaining)
        rows = store.states(list(trials))
        progress.update(rows)
        for line in _describe_others(store, rows, reported):
            progress.print_line(line)
        open_states = {row.state for row in rows.values()} - FINAL_STATES
        if not open_states:
            return
        done = dispatch(store, settings, [id for id, row in rows.items() if row.state == "queued"], plan)
        for note in done.notes() if done is not None else ():
            progress.print_line(note)
        if done is None:
            if open_states == {"queued"} and not reported_wait:
                full = f"workers of other command lines use all worker slots ({plan.parallel})"
                progress.print_line(f"Waiting: {_describe_unknown(settings, rows) or full}.")
                reported_wait = True
            used = time.process_time() - used_before
            interval = max(POLL_INTERVAL_S, used / MAX_POLL_SHARE, time.monotonic() - start)
            _wait_for_news(store, settings, interval)


def _describe_others(store: Store, rows: Mapping[str, TrialRow], reported: set[tuple[str, int]]) -> Iterator[str]:
    """Yield a line for each other process whose workers run some of the trials, and add it to `reported`."""
    active: dict[str | None, list[str]] = {}
    for id, row in rows.items():
        if row.state in ("submitted", "running"):
            active.setdefault(row.submission_id, []).append(id)
    for submission in store.open_submissions() if active else ():
        process = submission.host, submission.pid
        if submission.id not in active or _is_mine(submission) or process in reported:
            continue
        reported.add(process)
        whose = "the worker of a command that has ended" if _is_orphaned(submission) else f"process {submission.pid}"
        whose = f"SLURM job {submission.job_id}" if submission.executor == "slurm" else whose
        started = f"{submission.username} on {submission.host}, {submission.created_at[:16].replace('T', ' ')} UTC"
        ids = active[submission.id]
        names = ", ".join(ids[:3]) + ", …" * (len(ids) > 3)
        yield f"Waiting for {count_of(len(ids), 'trial')} that others train ({names}): {whose}, started by {started}"


def _describe_unknown(settings: Settings, rows: Mapping[str, TrialRow]) -> str:
    """Return which process runs one of the queued trials: of a command with another database; "" if none does."""
    for directory in (Runs(settings.runs)[id] for id, row in rows.items() if row.state == "queued"):
        if directory.path.exists() and directory.locked() and (attempts := directory.attempts()):
            worker = f"process {attempts[-1]['pid']} on {attempts[-1]['host']}"
            return f"{worker}, which is of a command with another database, trains {directory.id}"
    return ""


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
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        used = {row.submission_id for row in store.states(ids).values()}
        rows = store.open_submissions()
        submissions = [row for row in rows if _is_mine(row) or (row.id in used and _is_orphaned(row))]
        for row in submissions:
            (Path(row.folder) / STOP_FILE).touch()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
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
