"""`make bench` in a fresh clone of the last commit: its parts, against fixed limits."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.database.queue import judged
from benchmarks.measure import Measurement

ROOT = Path(__file__).parents[1]
PARTS = {
    "installation": "Creating .venv",
    "first imports": "Importing the libraries for the first time",
    "training": r"\S*dropbench run",
    "table": r"\[(\d+)/\1\] ",
}
"""The parts of `make bench`, and a pattern of the line with which each begins."""
HELD = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def quickstart() -> list[Measurement]:
    """Held at AVX2, in an environment without `DROPBENCH_…` variables."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DROPBENCH_")}
    environment = {**own, **HELD}
    with TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "-q", str(ROOT), folder], check=True)
        start = time.perf_counter()
        with subprocess.Popen(
            ["make", "bench"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            seconds = split_seconds(stamped(process.stdout), start)
        if process.returncode:
            raise SystemExit("make bench failed in a fresh clone")
    whole = sum(seconds.values())
    limited = {
        "make bench": (whole, 150.0),
        "its set-up": (seconds["installation"] + seconds["first imports"], 45.0),
        "its training": (seconds["training"], 90.0),
    }
    return [
        *(judged(f"{name}, AVX2", [taken], limit) for name, (taken, limit) in limited.items()),
        *(
            Measurement(
                f"{part}, AVX2", "make bench", taken / whole, None, round(1000 * taken, 1), round(1000 * whole, 1)
            )
            for part, taken in seconds.items()
        ),
    ]


def stamped(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Yield the time and the text of each line, and the time of the end."""
    for line in lines:
        yield time.perf_counter(), line
    yield time.perf_counter(), ""


def split_seconds(lines: Iterable[tuple[float, str]], start: float) -> dict[str, float]:
    """Return the seconds of each of `PARTS`, by its first line; the first part begins at `start`."""
    names = list(PARTS)
    begins = [start]
    for moment, line in lines:
        if len(begins) < len(names) and re.match(PARTS[names[len(begins)]], line):
            begins.append(moment)
    return {name: end - begin for name, begin, end in zip(names, begins, [*begins[1:], moment], strict=True)}
