"""The predictions of a trial, in its run directory."""

from __future__ import annotations

from collections.abc import Sequence

from dropbench.harness.errors import InputError
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.schema import FORMAT, Header, Predictions, unique_ids
from dropbench.harness.predictions.store import predictions_path, read_predictions, write_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.task import Split, Task


def keep_predictions(
    directory: RunDirectory, task: Task, split: Split, recorder: Recorder, order: Sequence[int]
) -> None:
    """Write what a task recorded on a split; a task without rows, or without ids of its examples, writes nothing.

    `order` are the samples of the split in the order of the evaluation. The caller holds the directory's lock. Raises
    OSError if the disk is full, or the folder cannot be written.
    """
    if not recorder.rows or (len(recorder.rows) != len(order) and "index" not in recorder.rows[0]):
        return
    samples = iter(order)
    rows = [row if "index" in row else {**row, "index": next(samples)} for row in recorder.rows]
    rows.sort(key=lambda row: row["index"])
    ids = [task.example_id(split, row["index"]) for row in rows]
    known = [id for id in ids if id is not None]
    if len(known) < len(rows):
        return
    trial = task.trial
    header = Header(
        format=FORMAT,
        trial=trial.id,
        task=trial.task,
        data=trial.data.name,
        fingerprint=trial.data.fingerprint,
        split=split,
        rows=len(rows),
        columns=dict(recorder.columns),
        classes=tuple(recorder.classes),
        metrics=dict(recorder.metrics),
        corpus={name: dict(options) for name, options in recorder.corpus.items()},
    )
    directory.check()
    identified = [{"id": id, **row} for id, row in zip(unique_ids(known), rows, strict=True)]
    write_predictions(predictions_path(directory.path, split), Predictions(header, identified))


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
