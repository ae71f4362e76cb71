"""The end of a command that has loaded torch, which is not unloaded."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.paths import ROOT

PROGRAM = (
    "import atexit, sys, torch; from dropbench.harness.cli import main; atexit.register(print, 'at exit'); "
    "main.run = lambda arguments: print('output') or 3; main.main()"
)


def end(redirected: str = "") -> subprocess.CompletedProcess[str]:
    command = f"'{sys.executable}' -c \"{PROGRAM}\" {redirected}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}  # output waits for the end
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=environment)


def test_output_exit_code_and_functions_at_exit_are_kept() -> None:
    done = end()
    assert (done.returncode, done.stdout, done.stderr) == (3, "output\nat exit\n", "")


def test_lost_output_is_reported() -> None:
    done = end("> /dev/full")
    assert done.returncode not in (0, 3)
    assert "No space left on device" in done.stderr
