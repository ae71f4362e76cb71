"""A workplace with a suite of tiny trials, and the real command line in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.worker.fork_server import PROCESS_NAME
from tests import forkserver
from tests.paths import ROOT
from tests.patience import PATIENCE

Tiny = Callable[..., list[Trial]]
"""The fixture `tiny`: creates trials of the tiny task."""
Programs = Callable[..., None]
"""The fixture `programs`: replaces the programs on PATH."""

PLUGIN = Path(__file__).with_name("tiny_task.py")
HEAD = """
title: A tiny table
source: these tests
metric: accuracy
trial: {task: tiny, data: tiny, model: tiny}
columns: [{label: Tiny}]
"""
"""The beginning of a suite of tiny trials."""
SUITE = f"""{HEAD}
rows:
  - {{label: none, baseline: true, trial: {{regularizer: none}}}}
  - {{label: dropkey, trial: {{regularizer: dropkey, params: {{ratio: 0.3}}}}}}
presets:
  mini: {{seeds: 2}}
  one: {{seeds: 1}}
  long: {{seeds: 2, overrides: {{steps: 400}}}}
"""


class Workplace:
    """A folder with a suite, and everything that the commands leave in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.runs = folder / "runs"
        self.database = f"sqlite:///{folder / 'bench.db'}"
        self.pause, self.trouble = folder / "pause", folder / "fault"
        (folder / "tiny.yaml").write_text(SUITE, encoding="utf-8")
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DROPBENCH_RUNS": str(self.runs),
            "DROPBENCH_DB": self.database,
            "DROPBENCH_PLUGINS": str(PLUGIN),
            "TINY_PAUSE": str(self.pause),
            "TINY_FAULT": str(self.trouble),
            "OMP_NUM_THREADS": "1",
        }

    @property
    def settings(self) -> Settings:
        return Settings(runs=self.runs, database=self.database, plugins=(PLUGIN,), threads=1)

    def start(
        self, *arguments: str, program: Sequence[str] = ("-m", "dropbench.harness.cli.main"), **options: Any
    ) -> subprocess.Popen[str]:
        """Start the command line in a session of its own, as a terminal would."""
        # A signal may come between the opening of a folder by pathlib and its `with`.
        warnings = ("-W", "error", "-W", "ignore:unclosed scandir iterator:ResourceWarning")
        command = [sys.executable, *warnings, *program, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(
            command, cwd=self.folder, text=True, start_new_session=True, **{**pipes, "env": self.environment, **options}
        )

    def call(
        self, *arguments: str, env: Mapping[str, str] | None = None, fresh: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end, in a fork of a process that has imported torch.

        Args:
            arguments: arguments of the command line.
            env: its environment; None: that of this workplace.
            fresh: start a new process instead, as with any `options`.
            options: options of `start`.
        """
        env = self.environment if env is None else env
        if not fresh and not options:
            return forkserver.run(arguments, cwd=self.folder, env=env)
        process = self.start(*arguments, env=env, **options)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ok(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line as `call` does, and assert that it succeeds."""
        done = self.call(*arguments, **options)
        assert done.returncode == 0, done.stderr
        return done

    def processes(self, kind: str = "") -> list[int]:
        """Return the live processes for this workplace: a "worker", the "server" that forks workers, or either."""
        processes: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes().decode().split("\0")
                    state = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                    name = (entry / "comm").read_text(encoding="utf-8").strip()
                except OSError:
                    continue
                if state != "Z" and "dropbench.jobs.worker.fork_server" in command and str(self.runs) in command:
                    processes[int(entry.name)] = "worker" if name == PROCESS_NAME else "server"
        return [pid for pid, own in processes.items() if kind in ("", own)]

    def directories(self) -> list[RunDirectory]:
        return list(Runs(self.runs))

    def running(self) -> list[RunDirectory]:
        """Return the trials that are in training: locked, with a step done in their last attempt."""
        return [directory for directory in self.directories() if directory.locked() and _training(directory)]

    def attempts(self) -> dict[str, list[dict[str, Any]]]:
        return {directory.id: directory.attempts() for directory in self.directories()}

    def clean(self) -> None:
        """Kill the processes of this workplace."""
        while left := self.processes():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)


def _training(directory: RunDirectory) -> bool:
    kinds = [event["event"] for event in directory.events()]
    return bool(kinds) and kinds[-1] in ("train", "evaluate")
