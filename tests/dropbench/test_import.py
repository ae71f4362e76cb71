"""`import dropbench`: the modules that it loads, and the time that it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dropbench
from tests.paths import ROOT

MAX_SECONDS = 0.15
"""CPU time of `import dropbench`, besides that of starting Python."""


def test_importing_dropbench_imports_no_library() -> None:
    loaded = "import sys, dropbench; print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"torch", "pandas", "sqlalchemy", "typer", "numpy"}.isdisjoint(done.stdout.split())
    assert "harness" in done.stdout.split()


def test_importing_dropbench_takes_little_time(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def cpu_seconds(program: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, env=environment)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    rounds = [(cpu_seconds("pass"), cpu_seconds("import dropbench")) for _ in range(5)]
    start, imported = (min(column) for column in zip(*rounds, strict=True))
    assert imported - start < MAX_SECONDS


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(dropbench, name) is not None for name in dropbench.__all__)
