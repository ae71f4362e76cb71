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


def test_output_exit_code_and_functions_at_exit_are_kept() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}  # output waits for the end
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (3, "output\nat exit\n", "")
