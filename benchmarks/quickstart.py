"""Measure `make bench` in a fresh clone of the last commit, and its parts, against fixed limits."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Measurement, within

ROOT = Path(__file__).parents[1]
PARTS = {
    "installation": "Creating .venv",
    "first imports": "Importing the libraries for the first time",
    "training": r"\S*dropbench run",
    "table": r"\[(\d+)/\1\] ",
}
"""The parts of `make bench`, and a pattern of the line with which each begins."""
LIMIT_S, SET_UP_LIMIT_S, TRAINING_LIMIT_S = 150.0, 45.0, 90.0
HELD = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def quickstart() -> list[Measurement]:
    """Run `make bench` once, held at AVX2 and without the variables `DROPBENCH_…`."""
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
    set_up = seconds["installation"] + seconds["first imports"]
    all_ms = round(1000 * whole, 1)
    shares = (
        Measurement(f"its {part}, AVX2", "make bench", taken / whole, None, round(1000 * taken, 1), all_ms)
        for part, taken in seconds.items()
        if part != "training"
    )
    return [
        within("make bench, AVX2", LIMIT_S, [whole]),
        within("its set-up, AVX2", SET_UP_LIMIT_S, [set_up]),
        within("its training, AVX2", TRAINING_LIMIT_S, [seconds["training"]]),
        *shares,
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
