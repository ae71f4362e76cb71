"""Run directories of a suite without any training, and the file of reference results made from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.reference.extend import Extension, extend
from dropbench.harness.files import write_atomic
from dropbench.harness.predictions.schema import Header, Kind, Predictions, Ratio
from dropbench.harness.predictions.store import predictions_path, write_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.request import write_request
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import request_suite
from tests.db.records import ENDED, STARTED

SUITE = "field/vision"
ROWS = ("none", "dropkey")
EXAMPLES = {f"{number:012x}": number % 2 for number in range(6)}
"""Ids of examples and their classes."""


def campaign(
    runs: Path,
    rows: Sequence[str] = ROWS,
    *,
    base: float = 90.0,
    suite: str = SUITE,
    folder: Path | None = None,
    whole: bool = True,
    at: str = STARTED,
    **options: Any,
) -> list[Trial]:
    """Write a finished run directory per trial; the accuracy is `base`, plus 0.1 for each seed and 1 for each row.

    Its request is made `at` this time, and names all rows if `whole`.

    Each trial has predictions for `EXAMPLES`, of which it has as many correct as its seed says.
    """
    trials = []
    loaded = load_suite(suite)
    requested = request_suite(loaded, SuiteOptions(**options), Settings(data=folder or runs / "no-data"))
    cells = tuple(cell for cell in requested.request.cells if cell.row in rows)
    named = requested.request.cells if whole else cells
    write_request(runs, requested.request.model_copy(update={"created_at": at, "cells": named}))
    for cell in cells:
        for trial in (requested.trials[id] for each in cell.candidates for id in each.trials):
            moved = trial.data.model_copy(update={"path": "/secret"})
            directory = RunDirectory.create(runs, trial.model_copy(update={"data": moved}))
            used = {"host": "secret", "pid": 7, "job_id": "8", "message": "/home/me", "cpu_seconds": 3.5, "cpus": 1}
            times = {"started_at": STARTED, "ended_at": ENDED}
            directory.write_attempt(1, {"state": "succeeded", "cause": None, **times, **used})
            libraries = {"torch": "2.13.0+cpu", "timm": "1.0.31"}
            machine = {"device": "A processor", "threads": 1, "host": "secret", "platform": "secret"}
            directory.write("environment.json", {"python": "3.11.7", "libraries": libraries, **machine})
            value = base + rows.index(cell.row) + trial.seed / 10
            metrics = {"test/accuracy": value, "dev/accuracy": value + 1, "train/loss": 0.5}
            result = {"format": 1, "metrics": metrics, "notes": [], "selected_step": 200, "steps": 380}
            directory.write_result(result)
            write_predictions(predictions_path(directory.path, "test"), predictions(trial))
            trials.append(trial)
    return trials


def predictions(trial: Trial) -> Predictions:
    """Return predictions of classes."""
    columns: dict[str, Kind] = {"target": "class", "prediction": "class", "probability": "number", "correct": "number"}
    accuracy = Ratio(sum="correct", scale=100.0)
    header = Header(
        format=1, trial=trial.id, task=trial.task, data=trial.data.name, fingerprint=trial.data.fingerprint,
        split="test", rows=len(EXAMPLES), columns=columns, classes=("a", "b"), metrics={"accuracy": accuracy},
    )  # fmt: skip
    rows = []
    for index, (id, target) in enumerate(EXAMPLES.items()):
        correct = int(index < trial.seed)
        prediction = target if correct else 1 - target
        row = {"target": target, "prediction": prediction, "probability": 0.75, "correct": correct}
        rows.append({"id": id, "index": index, **row})
    return Predictions(header, rows)


def extended(file: Path, runs: Path, suite: str = SUITE, *, plugins: bool = False) -> Extension:
    """Extend a file by run directories."""
    content, extension = extend(file, [runs], [load_suite(suite)], "0123abcd", plugins=plugins)
    write_atomic(file, content)
    return extension


def small_file(folder: Path) -> Path:
    """Write a file with the rows `ROWS` and two seeds, and return its path."""
    campaign(folder / "theirs", seeds=(0, 1))
    extended(folder / "x.zip", folder / "theirs")
    return folder / "x.zip"
