"""Predictions as pandas data frames: stored ones, and those of a model that is evaluated for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dropbench.harness.errors import InputError
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.schema import Header, Predictions
from dropbench.harness.trials.task import Split

if TYPE_CHECKING:
    from pandas import DataFrame

    from dropbench.harness.analysis.trained import Trained


TAGS = {"target": "classes", "prediction": "classes", "probabilities": "numbers"}
"""Columns that have a value for each word of a sentence."""


def predictions_frame(predictions: Predictions) -> DataFrame:
    """Return one row per example, with names of classes; for tagged sentences, one row per word."""
    from pandas import DataFrame

    header = predictions.header
    is_tagged = TAGS.items() <= header.columns.items()
    rows: list[dict[str, Any]] = []
    for row in predictions.rows:
        values = {name: header.named(name, row[name]) for name in header.columns}
        id = {"id": row["id"]} if "id" in row else {}
        if is_tagged:
            words = zip(*(values[name] for name in TAGS), strict=True)
            for word, (target, prediction, probability) in enumerate(words):
                tags = {"target": target, "prediction": prediction, "probability": probability}
                rows.append({"sample": row["index"], "word": word, **tags, **id})
        else:
            rows.append({"sample": row["index"], **values, **id})
    return DataFrame(rows)


def evaluate_predictions(trained: Trained, split: Split) -> Predictions:
    """Evaluate a model that predicts classes; return what its task records, in the order of the data, without ids.

    Raises:
        InputError: the task predicts no classes, or has mixed labels on this split.
    """
    from dropbench.harness.analysis.options import Options
    from dropbench.tasks.classifier import Classifier

    def check_labels(batch: Any) -> Any:
        if isinstance(trained.task, Classifier) and getattr(batch[1], "ndim", 0) != 1:
            raise InputError(f"split '{split}' has mixed labels: use split 'dev' or 'test'")
        return batch

    recorder = trained.task.recorder = Recorder()
    trained.evaluate(Options(split), change=check_labels)
    if recorder.columns.get("prediction") not in ("class", "classes"):
        command = f"dropbench analyze {trained.directory.id} predictions"
        raise InputError(f"task '{trained.trial.task}' predicts no classes: run `{command}` for pictures")
    samples = iter(trained.indices(Options(split)))
    rows = [row if "index" in row else {**row, "index": next(samples)} for row in recorder.rows]
    known: dict[str, Any] = {"columns": dict(recorder.columns), "classes": tuple(recorder.classes)}
    return Predictions(Header.model_construct(**known), sorted(rows, key=lambda row: row["index"]))
