"""Start-up: `dropbench --help` against the imports that any command line of typer and rich pays for."""

from __future__ import annotations

import sys

from benchmarks.measure import Measurement, compare, process


def startup() -> list[Measurement]:
    """Whole processes."""
    python = sys.executable
    return [
        compare(
            "dropbench --help",
            process(python, "-m", "harness.cli", "--help"),
            'python -c "import typer, rich"',
            process(python, "-c", "import typer, rich"),
            limit=2.0,
            rounds=15,
        )
    ]
