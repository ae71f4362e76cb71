"""Run `python -m MODULE` in a fork of a process that has imported torch already, as `subprocess.run` would.

A start of the command line takes a second or more, nearly all of it imports. The server below imports the libraries
once and does nothing else: it starts no thread, runs no operation of torch, and opens no file. Each command is a fork
of it, with its own working directory, environment, arguments and standard streams. At its end it runs the exit handlers
and collects garbage, so that warnings are printed, but does not unload the libraries, which takes longer than most
commands.

Tests of start-up, of signals and of fresh imports start true processes.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[1]
LIBRARIES = (
    "alembic.command", "jinja2", "pydantic", "rich.console", "rich.live", "rich.progress", "rich.table",
    "sqlalchemy.dialects.sqlite", "submitit", "torch", "torch.nn.functional", "typer.main", "yaml",
)  # fmt: skip
OURS = (
    "db.cli.commands", "jobs.cli.query_commands", "db.report.formats.terminal", "db.store.rebuild", "db.store.store",
    "harness.cli.commands", "harness.training.engine", "harness.trials.plugins", "jobs.cleanup.gc",
    "jobs.cli.queue_commands", "jobs.cli.report_commands", "jobs.cli.run_commands", "jobs.cli.suite_analysis",
    "jobs.queue.reconcile", "jobs.queue.run_loop", "jobs.queue.status", "jobs.submission.submit", "jobs.worker.worker",
)  # fmt: skip
"""Modules that read no environment variable when they are imported, except those of `READ_LATE`."""

READ_LATE = (
    "DROPBENCH_",
    "TINY_",
    "SLURM_",
    "SUBMITIT_",
    "_DROPBENCH_COMPLETE",
    "COMP_",
    "COLUMNS",
    "PATH",
    "PYTEST_",
    "KMP_",
)
"""Beginnings of the variables that may differ between the server and a command: nothing reads them on import.

scikit-learn sets those of KMP, which GCC's OpenMP does not know, in the process that runs the tests.
"""

MAX_REQUEST = 1 << 17
"""Bytes of a request: arguments and environment."""


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    module: str = "harness.cli.main",
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run `python -W error -m module` to its end in a session of its own.

    Raises:
        subprocess.TimeoutExpired: the command was killed.
    """
    fixed = tuple(sorted((name, value) for name, value in env.items() if not name.startswith(READ_LATE)))
    if not hasattr(os, "pidfd_open"):
        return _run_process(arguments, cwd, env, module, timeout)
    return _server(os.getpid(), fixed).run(arguments, cwd, env, module, timeout)


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


@functools.cache
def _server(owner: int, environment: tuple[tuple[str, str], ...]) -> Server:
    """Start one server per environment, for as long as this process lives."""
    return Server(dict(environment))


class Server:
    """A process to fork commands from.

    Args:
        environment: its variables, those that libraries may read on import.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.forkserver", str(other.fileno())],
                cwd=ROOT,
                env={**environment, "PATH": os.environ.get("PATH", os.defpath)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        self._process.returncode = 0  # It ends when the channel closes.
        atexit.register(self._channel.close)

    def run(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], module: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a module in a fork. See `run`."""
        request = {"module": module, "arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
        pipes = [os.pipe() for _ in range(3)]
        with open(os.devnull) as nothing:
            handles = [nothing.fileno(), *(write_end for _, write_end in pipes)]
            socket.send_fds(self._channel, [json.dumps(request).encode()], handles)
        for _, write_end in pipes:
            os.close(write_end)
        try:
            out, err, reply = _read_all([read_end for read_end, _ in pipes], timeout)
        except _Late as late:
            os.kill(int(late.contents[2].split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout, *late.contents[:2]) from None
        return subprocess.CompletedProcess(arguments, int(reply.split()[1]), out.decode(), err.decode())


class _Late(Exception):
    """Not all streams have ended in time."""

    def __init__(self, contents: list[bytes]) -> None:
        super().__init__()
        self.contents = contents


def _read_all(handles: Sequence[int], timeout: float) -> list[bytes]:
    """Read several pipes to their ends, and close them."""
    contents = [b""] * len(handles)
    end = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for number, handle in enumerate(handles):
            selector.register(handle, selectors.EVENT_READ, number)
        try:
            while selector.get_map():
                for key, _ in selector.select(end - time.monotonic()):
                    part = os.read(key.fd, 1 << 16)
                    contents[key.data] += part
                    if not part:
                        selector.unregister(key.fd)
                if time.monotonic() > end:
                    raise _Late(contents)
        finally:
            for handle in handles:
                os.close(handle)
    return contents


def serve(channel: socket.socket) -> dict[str, Any]:
    """Fork a process for every request; returns the request in each of them."""
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not channel:
                pid, reply = key.data
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _answer(reply, f"{code}\n")
                selector.unregister(key.fd)
                for handle in (reply, key.fd):
                    os.close(handle)
                continue
            message, handles, *_ = socket.recv_fds(channel, MAX_REQUEST, 4)
            if not message:
                os._exit(0)
            assert len([*Path("/proc/self/task").iterdir()]) == 1, "a library has started a thread on import"
            pid = os.fork()
            if pid == 0:
                os.setsid()
                for number in range(3):
                    os.dup2(handles[number], number)
                selector.close()
                channel.detach()
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                return dict(json.loads(message))
            for handle in handles[:3]:
                os.close(handle)
            _answer(handles[3], f"{pid}\n")
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, handles[3]))


def _answer(reply: int, text: str) -> None:
    """Write to a client, which may have given up."""
    try:
        os.write(reply, text.encode())
    except BrokenPipeError:
        return


def main() -> NoReturn:
    """Import the libraries, and become one command after the other."""
    for name in (*LIBRARIES, *OURS):
        importlib.import_module(name)
    sys.modules.pop("harness.cli.main", None)  # runpy makes it `__main__`
    gc.collect()
    gc.freeze()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    sys.argv = ["", *request["arguments"]]
    sys.modules["numpy"].random.seed()
    leave(execute(request["module"]))


def execute(module: str) -> int:
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


def leave(code: int) -> NoReturn:
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


if __name__ == "__main__":
    main()
