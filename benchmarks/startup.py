"""Start-up: whole processes of the command line, against lm_eval's and against fixed limits.

``DROPBENCH_BENCHMARK_STATUS=1000`` makes the database smaller.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.database import campaign
from benchmarks.database.queue import repeated
from benchmarks.database.stores import peers_python
from benchmarks.measure import Measurement, compare, process
from db.store.store import open_store

TRIALS = 100_000
HELP_SECONDS, LIST_SECONDS, STATUS_SECONDS = 0.3, 0.5, 0.7


def startup() -> list[Measurement]:
    """``--help`` beside that of lm_eval, and what people call all day."""
    found = []
    theirs = peers_python(), "-m", "lm_eval", "--help"
    if subprocess.run(theirs, capture_output=True, check=False).returncode:
        print("lm_eval is not installed, and is left out; see DROPBENCH_PEERS", file=sys.stderr)
    else:
        found.append(
            compare("dropbench --help", ours("--help"), "lm_eval --help", process(*theirs), limit=1.0, rounds=15)
        )
    found.append(repeated("dropbench --help, the whole process", HELP_SECONDS, ours("--help")))
    found.append(repeated("dropbench list suites, the whole process", LIST_SECONDS, ours("list", "suites")))
    count = int(os.environ.get("DROPBENCH_BENCHMARK_STATUS", TRIALS))
    with TemporaryDirectory() as folder:
        database = f"sqlite:///{Path(folder) / 'startup.db'}"
        with open_store(database) as store:
            store.enqueue((trial, "campaign") for trial in campaign.trials(count))
        call = ours("status", places=(f"DROPBENCH_DB={database}", f"DROPBENCH_RUNS={folder}"))
        found.append(repeated(f"dropbench status of {count:,} trials, the whole process", STATUS_SECONDS, call))
    return found


def ours(*command: str, places: tuple[str, ...] = ()) -> Callable[[], None]:
    """A command of ours, as a process."""
    return process("env", *places, sys.executable, "-m", "harness.cli.main", *command)
