"""`import dropbench`: the modules that it loads."""

from __future__ import annotations

import subprocess
import sys

import dropbench
from tests.paths import ROOT


def test_importing_dropbench_imports_no_library() -> None:
    loaded = "import sys, dropbench; print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"torch", "pandas", "sqlalchemy", "typer", "numpy"}.isdisjoint(done.stdout.split())
    assert "dropbench" in done.stdout.split()


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(dropbench, name) is not None for name in dropbench.__all__)
