"""The command line, and other code, in fresh processes that start with the heavy libraries already loaded."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.patience import PATIENCE

PRELOADED = (
    "pytest", "dropbench", "torch", "accelerate", "timm", "sqlalchemy", "alembic.command",
    "matplotlib.backends.backend_agg", "harness.cli.main", "harness.trials.plugins", "harness.training.engine",
    "harness.analysis.run", "jobs.cli.run_commands", "jobs.cli.report_commands", "jobs.queue.run_loop",
    "db.store.store", "jobs.cli.query_commands", "tasks.preset_task",
)  # fmt: skip
"""Modules imported once, by the process that all others are forked from. It only saves time: a missing one is ignored,
and plug-ins are loaded by the forked processes alone."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The parsed standard output."""
        return json.loads(self.out)


def dropbench(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, path: Sequence[Path] = ()
) -> Done:
    """Run a command line.

    Args:
        folder: the working directory; `DROPBENCH_*` variables are unset.
        arguments: the command line after `dropbench`.
        environment: further environment variables.
        path: folders to put in front of `sys.path`.
    """
    return in_process(_command, arguments, folder, environment or {}, path)


def in_process(
    function: Callable[..., int],
    arguments: Sequence[Any],
    folder: Path,
    environment: Mapping[str, str],
    path: Sequence[Path] = (),
) -> Done:
    """Call a module-level function in a process of its own; its return value is the exit code."""
    out, err = folder / ".out", folder / ".err"
    target = (function, arguments, folder, dict(environment), [str(one) for one in path], out, err)
    process = _context.Process(target=_child, args=target)
    process.start()
    process.join(PATIENCE)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise AssertionError(f"{arguments} still runs after {PATIENCE:.0f} s")
    process.close()
    return Done(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def _child(
    function: Callable[..., int],
    arguments: Sequence[Any],
    folder: Path,
    environment: dict[str, str],
    path: list[str],
    *outputs: Path,
) -> None:
    for number, output in enumerate(outputs, 1):
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, number)
        os.close(handle)
    for name in [name for name in os.environ if name.startswith("DROPBENCH_")]:
        del os.environ[name]
    gc.freeze()  # what was preloaded stays
    os.environ.update({"COLUMNS": "80", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment})
    os.chdir(folder)
    sys.path[:0] = path
    sys.exit(function(*arguments))


def _command(*arguments: str) -> int:
    from harness.cli.main import run

    return run(list(arguments))
