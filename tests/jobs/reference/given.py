"""Run directories of a suite without any training, and the file of reference results made from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.files import write_atomic, write_json
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import load_suite
from harness.trials.trial import Trial
from jobs.reference.extend import Extension, extend
from tests.db.conftest import ENDED, STARTED

SUITE = "field/vision"
ROWS = ("none", "dropkey")


def campaign(
    runs: Path, rows: Sequence[str] = ROWS, *, base: float = 90.0, suite: str = SUITE, **options: Any
) -> list[Trial]:
    """Write a finished run directory per trial; the accuracy is `base`, plus 0.1 for each seed and 1 for each row."""
    trials = []
    loaded = load_suite(suite)
    cells = loaded.trials(SuiteOptions(**options), Settings(data=runs / "no-data"))
    for cell, own in cells:
        if cell.row not in rows:
            continue
        for trial in own:
            directory = RunDirectory.create(runs, trial)
            directory.add_suites([loaded.name])
            used = {"host": "secret", "pid": 7, "job_id": "8", "message": "/home/me", "cpu_seconds": 3.5, "cpus": 1}
            times = {"started_at": STARTED, "ended_at": ENDED}
            directory.write_attempt(1, {"state": "succeeded", "cause": None, **times, **used})
            libraries = {"torch": "2.13.0+cpu", "timm": "1.0.31"}
            machine = {"device": "A processor", "threads": 1, "host": "secret", "platform": "secret"}
            write_json(directory.path / "environment.json", {"python": "3.11.7", "libraries": libraries, **machine})
            value = base + rows.index(cell.row) + trial.seed / 10
            metrics = {"test/accuracy": value, "dev/accuracy": value + 1, "train/loss": 0.5}
            result = {"format": 1, "metrics": metrics, "notes": [], "selected_step": 200, "steps": 380}
            directory.write_result(result)
            trials.append(trial)
    return trials


def extended(file: Path, runs: Path, suite: str = SUITE, *, plugins: bool = False) -> Extension:
    """Extend a file by run directories."""
    content, extension = extend(
        file, [runs], [load_suite(suite)], Settings(data=runs / "no-data"), "0123abcd", plugins=plugins
    )
    write_atomic(file, content)
    return extension


def small_file(folder: Path) -> Path:
    """Write a file with the rows `ROWS` and two seeds, and return its path."""
    campaign(folder / "theirs", seeds=(0, 1))
    extended(folder / "x.zip", folder / "theirs")
    return folder / "x.zip"
