"""The process from which local workers are forked, so that torch and the tasks' libraries are imported once.

It is started by a command line, ends when that closes its socket, and its workers continue.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from dropbench.harness.source import at_start
from dropbench.jobs.worker.forked import import_libraries, run_and_exit

PROCESS_NAME = "dropbench-work"
"""The name of a worker in lists of processes; Linux allows 15 characters."""

MAX_MESSAGE_BYTES = 2**16


def main(arguments: Sequence[str]) -> None:
    """Fork a worker for each message on a socket, until that is closed.

    `arguments` are the socket's file descriptor, the runs folder (which identifies the process), and the tasks and
    models to import, as ``task:model``. A message is a file with the fields of a `dropbench.jobs.worker.worker.Worker`
    and the worker's environment; with it comes the worker's slot as a file descriptor, so that the slot is always held.
    """
    at_start()
    connection = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    if pairs := [(task, model) for task, _, model in (pair.partition(":") for pair in arguments[2:])]:
        gc.disable()  # collections take a fifth of the time of the imports, and find nothing
        import_libraries(pairs)
        gc.freeze()  # the workers share what was imported: a collection would copy it
        gc.enable()
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 1)
        if not message:
            return
        if os.fork() == 0:
            connection.close()
            run_and_exit(partial(_run_worker, **json.loads(message)))
        for descriptor in descriptors:
            os.close(descriptor)


def _run_worker(file: str, environment: Mapping[str, str]) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(PROCESS_NAME)
    with open(Path(file).with_suffix(".log"), "ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    # Submitit's variables: this process is the job, even inside a SLURM allocation.
    os.environ |= {**environment, "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": str(os.getpid())}
    from dropbench.jobs.worker.worker import Worker

    Worker(**json.loads(Path(file).read_bytes()))()


if __name__ == "__main__":
    main(sys.argv[1:])
