"""Predictions of reference trials: predicted classes alone, and the examples of a split once for all trials."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import Examples, Predicted
from dropbench.db.schema.tables import Trials
from dropbench.db.store.store import Store
from dropbench.db.transfer.validation import WrongRowError
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import ID, Header, Predictions, Row, check_header, content_id
from dropbench.harness.validation import validated

COLUMNS = {"target": "class", "prediction": "class", "correct": "number"}
"""The columns that are kept, with their kinds."""


def compact(predictions: Predictions) -> tuple[Row, Row] | None:
    """Return the rows of `Examples` and `Predicted`; None unless the task predicts one class for each example."""
    header, rows = predictions.header, predictions.rows
    if not COLUMNS.items() <= header.columns.items():
        return None
    complete = [row["index"] for row in rows] == list(range(len(rows)))
    if not complete or any(row["correct"] != (row["target"] == row["prediction"]) for row in rows):
        return None
    metrics = {name: ratio for name, ratio in header.metrics.items() if {ratio.sum, *ratio.over} <= COLUMNS.keys()}
    kept = header.model_copy(update={"columns": COLUMNS, "metrics": metrics, "corpus": {}})
    examples = {
        "header": _json(kept.model_dump(mode="json", exclude={"trial"})),
        "ids": " ".join(row["id"] for row in rows),
        "targets": _json([row["target"] for row in rows]),
    }
    id = content_id(*examples.values())
    classes = _json([row["prediction"] for row in rows])
    predicted = {"trial_id": header.trial, "split": header.split, "examples_id": id, "classes": classes}
    return {"examples_id": id, **examples}, predicted


def add(connection: Connection, rows: Iterable[tuple[Row, Row]]) -> None:
    """Insert rows of `compact`, without those that are present already."""
    for examples, predicted in rows:
        for table, row in ((Examples, examples), (Predicted, predicted)):
            connection.execute(insert(table).prefix_with("OR IGNORE"), row)


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
    check_header(header, "examples")
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


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
