"""Processes of this machine that train each trial together: started, and ended when one of them dies."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.worker.attempt import attribute_cause, finalize_dead, open_log
from dropbench.jobs.worker.forked import run_and_exit
from dropbench.jobs.worker.stop_requests import StopRequests

END_TIMEOUT_S = 30.0
"""Seconds that the processes have to end after the first of them has ended."""

_POLL_INTERVAL_S = 0.1


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


def run_together(run: Callable[[int, int], object], count: int, stop_requests: StopRequests) -> None:
    """Call `run` in processes that train together, with the rank of each and the port of their store on 127.0.0.1.

    A signal is forwarded to them. When one has ended, the others have `END_TIMEOUT_S` to end, too.

    Raises:
        ProcessDiedError: one was killed, or ended with an error.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        pids = []
        for rank in range(count):
            pid = os.fork()
            if pid == 0:
                listening.close()
                run_and_exit(lambda rank=rank: run(rank, port))  # type: ignore[misc]
            pids.append(pid)
        from torch._C._distributed_c10d import TCPStore

        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    running, forwarded, deadline = dict(zip(pids, range(count), strict=True)), None, math.inf
    deaths: list[tuple[str, int]] = []
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
                rank, code = running.pop(pid), os.waitstatus_to_exitcode(status)
                if code and time.monotonic() < deadline:
                    deaths.append((f"process {rank + 1} of the {count} that train together", code))
                deadline = min(deadline, time.monotonic() + END_TIMEOUT_S)
        time.sleep(_POLL_INTERVAL_S)
    del store
    for which, code in sorted(deaths, key=lambda death: death[1] == 1):  # those of the others follow from its death
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended with an error"
        raise ProcessDiedError(pids[0], f"{which} {how}")


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)
