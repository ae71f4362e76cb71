"""Forked processes of workers: how they end, several of them side by side in one job, and those that train together."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.attempt import attribute_cause, finalize_dead, open_log
from dropbench.jobs.worker.process_group import ProcessGroup
from dropbench.jobs.worker.stop_requests import StopRequests

_POLL_INTERVAL_S = 0.1

_ENDS_OF_ONE_TRIAL = ("failed", "lost", "out_of_memory")
"""States of an attempt whose end does not concern other trials of the same worker."""

END_TIMEOUT_S = 30.0
"""Seconds that processes which train together have to end after the first of them has ended."""

_LIBRARIES = (
    "dropbench.harness.trials.plugins",
    "dropbench.harness.training.engine",
    "dropbench.jobs.worker.worker",
)


def import_libraries(pairs: Iterable[tuple[str, str]]) -> None:
    """Import what trials of these tasks and models need, before a fork; without an error, which their trials report.

    It runs no operation of torch, whose threads a fork would not have.
    """
    # A library that asks for GPUs while it is imported must not initialize CUDA, which does not survive a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    with contextlib.suppress(Exception):
        for name in _LIBRARIES:
            importlib.import_module(name)
    from dropbench.harness.models.catalog import MODELS
    from dropbench.harness.trials.task import TASKS

    for task, model in pairs:  # plug-ins are loaded by their trials
        with contextlib.suppress(Exception):
            TASKS.get(task)
        with contextlib.suppress(Exception):
            MODELS.get(model)


def run_and_exit(run: Callable[[], object]) -> NoReturn:
    """Call a function, then end this process without unloading its libraries, which takes long."""
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_side_by_side(run: Callable[[int], object], count: int, stop_requests: StopRequests) -> None:
    """Call `run` with 0, …, `count` - 1 in a process each, forward a signal to them, and wait until all have ended.

    Raises:
        ChildProcessError: one of them was killed; the others have run to their ends.
    """
    codes = _exit_codes([_fork(partial(run, number)) for number in range(count)], stop_requests)
    if died := [f"{pid} ({code})" for pid, code in codes.items() if code]:
        raise ChildProcessError(f"{len(died)} of {count} processes of this job died: {', '.join(died)}")


def _fork(run: Callable[[], object]) -> int:
    """Call a function in a process of its own; return the process id."""
    pid = os.fork()
    if pid == 0:
        run_and_exit(run)
    return pid


def _exit_codes(pids: Iterable[int], stop_requests: StopRequests, timeout: float = math.inf) -> dict[int, int]:
    """Forward a signal to processes, and wait until they have ended; return their exit codes, the first to end first.

    `timeout` is how many seconds the others have when the first has ended, after which they are killed.
    """
    running, forwarded, deadline = set(pids), None, math.inf
    codes: dict[int, int] = {}
    while running:
        if stop_requests.signal not in (None, forwarded):
            forwarded = stop_requests.signal
            _send(running, forwarded)
        if time.monotonic() > deadline:
            deadline = math.inf
            _send(running, signal.SIGKILL)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.remove(pid)
                codes[pid] = os.waitstatus_to_exitcode(status)
                deadline = min(deadline, time.monotonic() + timeout)
        time.sleep(_POLL_INTERVAL_S)
    return codes


class ProcessDiedError(Exception):
    """One of the processes that train together died, and the others were ended.

    Attributes:
        leader: the process id of rank 0.
    """

    def __init__(self, leader: int, cause: str) -> None:
        super().__init__(cause)
        self.leader = leader

    def record(self, directories: Iterable[RunDirectory]) -> None:
        """Write the end into the record and the log of the attempt that the processes were at."""

        def exit_cause(attempt: dict[str, Any]) -> tuple[str, str] | None:
            return ("lost", str(self)) if attempt["pid"] == self.leader else None

        for directory in directories:
            last: dict[str, Any] = next(reversed(directory.attempts()), {})
            if last.get("pid") == self.leader and last["state"] in ("running", "lost"):
                with directory.lock() as locked:
                    if locked:  # otherwise another worker has the trial
                        finalize_dead(directory, exit_cause)
                attribute_cause(directory, exit_cause)
                with contextlib.suppress(OSError), open_log(directory) as log:
                    log.write(f"{self}\n")


def run_together(
    count: int,
    settings: Settings,
    submission: str,
    folder: Path,
    directories: Sequence[RunDirectory],
    run: Callable[[ProcessGroup], object],
) -> None:
    """Call `run` in `count` processes, which train each trial of a submission together; record the death of one.

    A trial that fails, or runs out of memory, ends all processes. Further ones train what is left.
    """
    last = ""

    def run_rank(rank: int, port: int) -> None:
        run(ProcessGroup.on_this_machine(rank, count, port, folder, settings))

    with StopRequests(folder) as stop_requests:
        died = True
        while died and not stop_requests.should_stop():
            try:
                _run_processes(run_rank, count, stop_requests)
                died = False
            except ProcessDiedError as error:
                error.record(directories)
                started_at, state = _last_attempt(submission, directories)
                if started_at == last or state not in _ENDS_OF_ONE_TRIAL:
                    return
                last = started_at
                slots.check_writable(settings.runs)


def _last_attempt(submission: str, directories: Iterable[RunDirectory]) -> tuple[str, str]:
    """Return the start and the state of the last attempt of a submission."""
    last = ("", "")
    for directory in directories:
        with contextlib.suppress(InputError):  # a damaged file, for which `collect` fails the trial
            attempts = [each for each in directory.attempts() if each["submission"] == submission]
            last = max([last, *((each["started_at"], each["state"]) for each in attempts[-1:])])
    return last


def _run_processes(run: Callable[[int, int], object], count: int, stop_requests: StopRequests) -> None:
    """Call `run` in processes that train together, with the rank of each and the port of their store on 127.0.0.1.

    A signal is forwarded to them. When one has ended, the others have `END_TIMEOUT_S` to end, too.

    Raises:
        ProcessDiedError: one was killed, or ended with an error.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def run_rank(rank: int) -> None:
            listening.close()
            run(rank, port)

        pids = [_fork(partial(run_rank, rank)) for rank in range(count)]
        from torch._C._distributed_c10d import TCPStore

        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    codes = _exit_codes(pids, stop_requests, END_TIMEOUT_S)
    del store
    deaths = [(pid, code) for pid, code in codes.items() if code]
    for pid, code in sorted(deaths, key=lambda death: death[1] == 1):  # those of the others follow from its death
        which = f"process {pids.index(pid) + 1} of the {count} that train together"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended with an error"
        raise ProcessDiedError(pids[0], f"{which} {how}")


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)
