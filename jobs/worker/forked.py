"""Forked processes of workers: how they end, and several of them side by side in one job."""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import NoReturn

from dropbench.jobs.worker.attempt import is_out_of_memory
from dropbench.jobs.worker.stop_requests import StopRequests

_POLL_INTERVAL_S = 0.1

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
    except BaseException as error:
        code = errno.ENOMEM if is_out_of_memory(error) else 1
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
    running, killed, forwarded = set(), [], None
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            run_and_exit(lambda number=number: run(number))  # type: ignore[misc]
        running.add(pid)
    while running:
        if stop_requests.signal not in (None, forwarded):
            forwarded = stop_requests.signal
            for pid in running:
                os.kill(pid, forwarded)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.remove(pid)
                if status:
                    killed.append(f"{pid} ({os.waitstatus_to_exitcode(status)})")
        time.sleep(_POLL_INTERVAL_S)
    if killed:
        raise ChildProcessError(f"{len(killed)} of {count} processes of this job died: {', '.join(killed)}")
