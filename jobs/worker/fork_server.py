"""The process from which local workers are forked, so that torch and the tasks' libraries are imported once.

It only imports: it runs no operation of torch, whose threads a fork would not have, and never initializes a GPU. It is
started by a command line, ends when that closes its socket, and its workers continue.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

PROCESS_NAME = "dropbench-work"
"""The name of a worker in lists of processes; Linux allows 15 characters."""

MAX_MESSAGE_BYTES = 2**16

_LIBRARIES = ("submitit", "harness.trials.plugins", "harness.training.engine", "jobs.worker.worker")


def main(arguments: Sequence[str]) -> None:
    """Fork a worker for each message on a socket, until that is closed.

    `arguments` are the socket's file descriptor, the runs folder (which identifies the process), and the tasks and
    models to import, as ``task:model``. A message is a file with the fields of a `jobs.worker.worker.Worker` and the
    worker's environment; with it comes the worker's slot as a file descriptor, so that the slot is always held.
    """
    connection = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    _import(arguments[2:])
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 1)
        if not message:
            return
        if os.fork() == 0:
            connection.close()
            _run_worker(**json.loads(message))
        for descriptor in descriptors:
            os.close(descriptor)


def _import(pairs: Sequence[str]) -> None:
    if not pairs:
        return
    # Libraries that ask for GPUs while they are imported must not initialize CUDA, which does not survive a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    with contextlib.suppress(Exception):  # the worker's attempt reports it
        for name in _LIBRARIES:
            importlib.import_module(name)
    from harness.models.catalog import MODELS
    from harness.trials.task import TASKS

    for pair in pairs:
        task, _, model = pair.partition(":")
        for registry, name in ((TASKS, task), (MODELS, model)):
            with contextlib.suppress(Exception):  # also plug-ins, which the worker loads
                registry.get(name)


def _run_worker(file: str, environment: Mapping[str, str]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(PROCESS_NAME)
        with open(Path(file).with_suffix(".log"), "ab") as log:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
        # Submitit's variables: the process is the job, even inside a SLURM allocation.
        os.environ |= {**environment, "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": str(os.getpid())}
        from jobs.worker.worker import Worker

        Worker(**json.loads(Path(file).read_bytes()))()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # to unload the libraries would take longer than to start the worker


if __name__ == "__main__":
    main(sys.argv[1:])
