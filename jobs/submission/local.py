"""The executors `local`: processes on this machine, limited by `dropbench.jobs.worker.slots`; and `debug`: this one."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pdb
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from dropbench.harness.files import write_json
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.worker.slots import WorkerSlot
from dropbench.jobs.worker.worker import Worker

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_children: list[subprocess.Popen[bytes]] = []
"""The processes started here from which workers are forked; those that have ended are reaped when the next starts."""


class LocalWorkers:
    """Starts workers on this machine, in sessions of their own: they outlive the terminal and this process.

    They are forks of a process that has imported their libraries (`dropbench.jobs.worker.fork_server`), which ends with
    the context. With GPUs it imports none, as some libraries initialize GPUs, which a fork could not use.

    Args:
        runs: the folder of the run directories.
        threads: CPU threads per worker; 0: the libraries' default.
        devices: the GPUs; workers are distributed over them.
    """

    def __init__(self, runs: Path, threads: int, devices: Sequence[str] = ()) -> None:
        self.runs, self.threads, self.devices = runs, threads, devices
        self.connection: socket.socket | None = None

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        if self.connection is not None:
            self.connection.close()

    def prepare(self, trials: Iterable[Trial]) -> None:
        """Begin to import the libraries of some trials, without waiting for the end of it."""
        pairs = () if self.devices else sorted({f"{trial.task}:{trial.model}" for trial in trials})
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "dropbench.jobs.worker.fork_server", str(theirs.fileno())]
            process = subprocess.Popen(
                [*command, str(self.runs.absolute()), *pairs],
                env={**{name: str(self.threads) for name in _THREAD_VARIABLES if self.threads}, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # otherwise Ctrl-C would end it
                pass_fds=(theirs.fileno(),),
            )
        _children[:] = [child for child in _children if child.poll() is None] + [process]

    def start(self, worker: Worker, slot: WorkerSlot, trials: Iterable[Trial]) -> None:
        """Start a worker, which inherits the slot, to run some trials first."""
        groups = max(1, len(self.devices) // worker.processes)
        first = slot.number % groups * worker.processes
        device = ",".join(self.devices[first : first + worker.processes])
        file = Path(worker.folder) / f"{slot.number}.json"
        write_json(file, vars(worker), private=True)
        message = json.dumps({"file": str(file), "environment": {"CUDA_VISIBLE_DEVICES": device}}).encode()
        if self.connection is not None:
            with contextlib.suppress(ConnectionError):  # the process was killed
                socket.send_fds(self.connection, [message], [slot.fd])
                return
            self.connection.close()
        self.prepare(trials)
        assert self.connection is not None
        socket.send_fds(self.connection, [message], [slot.fd])


@atexit.register
def _disown() -> None:
    """Mark running processes as reaped: they may outlive this one, and Python would warn about them."""
    for child in _children:
        if child.poll() is None:
            child.returncode = 0


def run_debug(worker: Worker) -> None:
    """Run a worker in this process; at a terminal, an exception opens the debugger where it was raised."""
    try:
        worker()
    except Exception as error:
        # The trial's error: its attempt has recorded it.
        if not sys.stdin.isatty() or isinstance(error, BrokenPipeError):
            raise
        print(error)
        pdb.post_mortem(error.__traceback__)
