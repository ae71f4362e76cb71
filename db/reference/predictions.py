"""Predictions of reference trials: predicted classes alone, and the examples of a split once for all trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import Examples, Predicted
from dropbench.db.schema.tables import Trials
from dropbench.db.store.store import Store
from dropbench.db.transfer.validation import WrongRowError
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import ID, Header, Predictions
from dropbench.harness.validation import validated

COLUMNS = {"target": "class", "prediction": "class", "correct": "number"}
"""The columns that are kept, with their kinds."""


def load_reference_predictions(store: Store, trial_id: str, split: str) -> Predictions | None:
    """Return the predictions of a trial of a reference, by its id in the database; None if the reference has none."""
    query = select(Examples, Predicted.c.classes).join_from(
        Predicted, Examples, Predicted.c.examples_id == Examples.c.examples_id
    )
    with reading(store.engine) as connection:
        found = connection.execute(query.where(Predicted.c.trial_id == trial_id, Predicted.c.split == split)).mappings()
        row = found.one_or_none()
    return None if row is None else _unpacked(row, row["classes"], store.trials([trial_id])[trial_id].id)


def check_predictions(connection: Connection) -> None:
    """Raise WrongRowError unless all predictions fit their examples, and are of trials of the file."""
    sizes = {}
    for row in connection.execute(select(Examples)).mappings():
        where = f"examples: {row['examples_id']!a:.20}"
        try:
            header = _unpacked(row, row["targets"], "0" * 12).header
        except (InputError, ValueError, TypeError, RecursionError) as error:
            raise WrongRowError(f"{where}: {' '.join(str(error).split())[:200]}") from None
        sizes[row["examples_id"]] = header.split, header.rows, len(header.classes)
    unknown = select(Predicted.c.trial_id).where(Predicted.c.trial_id.not_in(select(Trials.c.id))).limit(1)
    if (id := connection.scalar(unknown)) is not None:
        raise WrongRowError(f"predicted: trial {id!a:.20} is not in trials")
    for row in connection.execute(select(Predicted)).mappings():
        split, number, classes = sizes.get(row["examples_id"], ("", 0, 0))
        try:
            valid = split == row["split"] and _are_classes(json.loads(row["classes"]), number, classes)
        except (ValueError, RecursionError):
            valid = False
        if not valid:
            raise WrongRowError(f"predicted: trial {row['trial_id']!a:.20}: expected a class for each example")


def _unpacked(examples: Mapping[Any, Any], classes: str, trial: str) -> Predictions:
    header = validated(Header, {**json.loads(examples["header"]), "trial": trial}, "examples")
    ids, targets, predicted = examples["ids"].split(" "), json.loads(examples["targets"]), json.loads(classes)
    if header.columns != COLUMNS or len(ids) != header.rows or not all(map(ID.fullmatch, ids)):
        raise ValueError(f"expected {header.rows} ids, and the columns {', '.join(COLUMNS)}")
    for numbers in (targets, predicted):
        if not _are_classes(numbers, header.rows, len(header.classes)):
            raise ValueError("expected a class for each example")
    rows = [
        {"id": id, "index": index, "target": target, "prediction": guess, "correct": int(target == guess)}
        for index, (id, target, guess) in enumerate(zip(ids, targets, predicted, strict=True))
    ]
    return Predictions(header, rows)


def _are_classes(numbers: object, length: int, classes: int) -> bool:
    # Sets and extremes instead of a loop: an archive has a million of these numbers.
    return (
        isinstance(numbers, list)
        and len(numbers) == length
        and {*map(type, numbers)} <= {int}
        and min(numbers, default=0) >= 0
        and max(numbers, default=-1) < classes
    )
