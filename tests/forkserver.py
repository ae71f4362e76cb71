"""Run `python -m MODULE` in a fork of a process that has imported torch already, as `subprocess.run` would.

A start of the command line takes a second or more, nearly all of it imports. multiprocessing's fork server imports the
libraries once. Each command is a fork of it, with its own working directory, environment, arguments and standard
streams. At its end it runs the exit handlers and collects garbage, so that warnings are printed, but does not unload
the libraries, which takes longer than most commands.

Tests of start-up, of signals and of fresh imports start true processes.
"""

from __future__ import annotations

import atexit
import functools
import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from tests.paths import ROOT
from tests.patience import PATIENCE

LIBRARIES = (
    "alembic.command", "encodings.idna", "jinja2", "pydantic", "rich.console", "rich.live", "rich.progress",
    "rich.table", "sqlalchemy.dialects.sqlite", "submitit", "tabulate", "torch", "torch.nn.functional",
    "typer._adapters", "typer.main", "yaml",
)  # fmt: skip
OURS = (
    "adapters.libraries.torch_attention", "db.cli.commands", "db.reference.load", "db.store.rebuild", "db.store.store",
    "db.transfer.export", "harness.checking.machine", "harness.interception.models", "harness.suites.suite",
    "harness.suites.tuning", "harness.training.engine", "harness.trials.plugins", "jobs.cleanup.gc",
    "jobs.cli.query_commands", "jobs.cli.queue_commands", "jobs.cli.report_commands", "jobs.cli.run_commands",
    "jobs.cli.submit_command", "jobs.cli.suite_analysis", "jobs.queue.reconcile", "jobs.queue.run_loop",
    "jobs.queue.status", "jobs.submission.submit", "jobs.worker.worker",
)  # fmt: skip
"""Modules of `dropbench` that read no environment variable when they are imported, except those of `READ_LATE`."""

READ_LATE = (
    "DROPBENCH_",
    "TINY_",
    "SLURM_",
    "SUBMITIT_",
    "_DROPBENCH_COMPLETE",
    "_TYPER_COMPLETE",
    "COMP_",
    "COLUMNS",
    "PATH",
    "PYTEST_",
    "KMP_",
    "LD_LIBRARY_PATH",
    "TORCHINDUCTOR_",
)
"""Beginnings of the variables that may differ between the server and a command: nothing reads them on import.

scikit-learn, OpenCV and torch set the last three in the process that runs the tests.
"""


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    module: str = "dropbench.harness.cli.main",
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run `python -W error -m module` to its end in a session of its own.

    Raises:
        subprocess.TimeoutExpired: the command was killed.
    """
    if _read_early(env) != start_server():
        return _run_process(arguments, cwd, env, module, timeout)
    with TemporaryDirectory() as folder:
        streams = [f"{folder}/out", f"{folder}/err"]
        target = (module, list(arguments), str(cwd), dict(env), streams)
        process = multiprocessing.get_context("forkserver").Process(target=_run_in_fork, args=target)
        process.start()
        process.join(timeout)
        late = process.exitcode is None
        if late:
            process.kill()
            process.join()
        out, err = (Path(stream).read_bytes().decode() for stream in streams)
        if late:
            raise subprocess.TimeoutExpired(list(arguments), timeout, out, err)
        assert process.exitcode is not None
        return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


def _run_process(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], module: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a process that is no fork."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=timeout,
        check=False,
    )


def _read_early(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that libraries may read on import."""
    own = {"PYTHONPATH": str(ROOT), **env}  # the path of the tests
    return {name: value for name, value in own.items() if not name.startswith(READ_LATE)}


@functools.cache
def start_server() -> dict[str, str]:
    """Start the server, with warnings as errors; return the variables that its libraries may have read."""
    preloaded = [*LIBRARIES, *(f"dropbench.{module}" for module in OURS)]
    multiprocessing.get_context("forkserver").set_forkserver_preload(preloaded)
    options, sys.warnoptions = sys.warnoptions, ["error"]
    try:
        forkserver.ensure_running()
    finally:
        sys.warnoptions = options
    return _read_early(os.environ)


def _run_in_fork(module: str, arguments: list[str], cwd: str, env: dict[str, str], streams: list[str]) -> NoReturn:
    """Become a process that runs a module."""
    os.setsid()
    gc.freeze()  # what was imported before stays
    handles = [os.open(os.devnull, os.O_RDONLY), *(os.open(file, os.O_WRONLY | os.O_CREAT) for file in streams)]
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path.insert(0, cwd)
    sys.argv = ["", *arguments]
    sys.modules["numpy"].random.seed()
    sys.modules.pop(module, None)  # runpy makes it `__main__`
    _leave(_execute(module))


def _execute(module: str) -> int:
    """Run a module as `python -m` does; returns the exit code."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """End this process as the interpreter would, but leave the modules where they are."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    sys.stderr.flush()
    os._exit(code & 0xFF)
