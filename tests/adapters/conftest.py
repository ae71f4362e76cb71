from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE


@pytest.fixture
def run_fresh(tmp_path: Path) -> Callable[..., str]:
    """Run a program in a fresh Python process, to test the first import of a library."""

    def run(program: str, *options: str) -> str:
        command = [sys.executable, *options, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
