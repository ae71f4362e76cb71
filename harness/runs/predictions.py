"""The predictions of a trial, in its run directory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.schema import FORMAT, Header, Predictions, check_row, unique_ids
from dropbench.harness.predictions.store import predictions_path, read_predictions, write_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.task import Split, Task
from dropbench.harness.validation import validated

TOLERANCE = 1e-3
"""Difference, relative or absolute, of a metric of rows, whose numbers are rounded, from that of the evaluation."""


def keep_predictions(
    directory: RunDirectory,
    task: Task,
    split: Split,
    recorder: Recorder,
    order: Sequence[int],
    metrics: Mapping[str, float],
) -> None:
    """Write `recorded_predictions`, if there are any.

    The caller holds the directory's lock. Raises OSError if the disk is full, or the folder cannot be written.
    """
    if (predictions := recorded_predictions(task, split, recorder, order, metrics)) is not None:
        directory.check()
        write_predictions(predictions_path(directory.path, split), predictions)


def recorded_predictions(
    task: Task, split: Split, recorder: Recorder, order: Sequence[int], metrics: Mapping[str, float] | None
) -> Predictions | None:
    """Return what a task recorded on a split, checked; None for a task without rows, or without ids of its examples.

    Args:
        task: the task after its evaluation.
        split: the split.
        recorder: the rows, and the definition of their columns.
        order: the samples of the split in the order of the evaluation.
        metrics: what the evaluation returned; None: it is not compared with the metrics of the rows.

    Raises:
        InputError: the rows are not those that `Recorder.define` describes, are too few, or give other metrics.
    """
    if not recorder.rows:
        return None
    indexed = all("index" in row for row in recorder.rows)
    if not indexed and len(recorder.rows) != len(order):
        counts = f"{count_of(len(recorder.rows), 'row')} for {count_of(len(order), 'sample')} of {split}"
        raise InputError(f"{counts}: add a row for each sample, or `index` to each row")
    samples = iter(order)
    rows = [row if indexed else {**row, "index": next(samples)} for row in recorder.rows]
    rows.sort(key=lambda row: row["index"])
    ids = [task.example_id(split, row["index"]) for row in rows]
    known = [id for id in ids if id is not None]
    if len(known) < len(rows):
        return None
    trial = task.trial
    fields = {
        "format": FORMAT,
        "trial": trial.id,
        "task": trial.task,
        "data": trial.data.name,
        "fingerprint": trial.data.fingerprint,
        "split": split,
        "rows": len(rows),
        **recorder.definition(),
        "classes": tuple(recorder.classes or getattr(task, "classes", ())),
    }
    header = validated(Header, fields, "Recorder.define")
    identified = [{"id": id, **row} for id, row in zip(unique_ids(known), rows, strict=True)]
    for row in identified:
        check_row(row, header, f"row of sample {row['index']}")
    predictions = Predictions(header, identified)
    if metrics is None:
        return predictions
    for name, value in predictions.metrics().items():
        evaluated = metrics.get(name, math.nan)  # a metric of predictions alone is that of no evaluation
        if math.isfinite(evaluated) and not math.isclose(value, evaluated, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            values = f"{value:.6g} from the rows, {evaluated:.6g} from the evaluation"
            raise InputError(f"metric {name}: {values}: define a ratio of sums that gives the same, or none")
    return predictions


def load_predictions(directory: RunDirectory, split: str) -> Predictions | None:
    """Return the predictions of a trial on a split; None if its task records none.

    Raises:
        InputError: the file is damaged, or is that of another trial or split.
    """
    path = predictions_path(directory.path, split)
    try:
        predictions = read_predictions(path)
    except FileNotFoundError:
        return None
    header = predictions.header
    if (header.trial, header.split) != (directory.id, split):
        raise InputError(f"{path}: predictions of trial {header.trial} on {header.split}: expected those of this trial")
    return predictions
