"""Predictions as pandas data frames: stored ones, and those of a model that is evaluated for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.predictions.schema import Predictions
from harness.trials.task import Split

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor, nn

    from harness.analysis.trained import Trained


def stored_frame(predictions: Predictions) -> DataFrame:
    """Return one row per example, with names of classes; for tagged sentences, one row per word."""
    from pandas import DataFrame

    header = predictions.header
    rows: list[dict[str, Any]] = []
    for row in predictions.rows:
        values = {name: header.named(name, row[name]) for name in header.columns}
        if {"target": "classes", "prediction": "classes", "probabilities": "numbers"}.items() <= header.columns.items():
            words = zip(*(values[name] for name in ("target", "prediction", "probabilities")), strict=True)
            for word, (target, prediction, probability) in enumerate(words):
                tags = {"target": target, "prediction": prediction, "probability": probability}
                rows.append({"sample": row["index"], "word": word, **tags, "id": row["id"]})
        else:
            rows.append({"sample": row["index"], **values, "id": row["id"]})
    return DataFrame(rows)


def evaluated_frame(trained: Trained, split: Split) -> DataFrame:
    """Evaluate a model that predicts classes; return the predictions with the columns that a frame always has.

    Raises:
        InputError: the task predicts no classes, or has mixed labels on this split.
    """
    from pandas import DataFrame

    from harness.analysis.options import Options
    from tasks.classifier import Classifier
    from tasks.text.sequence_labelling import UNTAGGED, SequenceLabelling

    task: Any = trained.task
    words = type(task).evaluate is SequenceLabelling.evaluate
    if not words and type(task).evaluate is not Classifier.evaluate:
        command = f"dropbench analyze {trained.directory.id} predictions"
        raise InputError(f"task '{trained.trial.task}' predicts no classes: run `{command}` for pictures")
    targets: list[list[Any]] = []
    outputs: list[tuple[list[Any], list[Any]]] = []

    def keep_targets(batch: Any) -> Any:
        labels = batch["tags"] if words else batch[1]
        if not words and getattr(labels, "ndim", 0) != 1:
            raise InputError(f"split '{split}' has mixed labels: use split 'dev' or 'test'")
        targets.append(labels.tolist())
        return batch

    def keep_outputs(module: nn.Module, inputs: object, logits: Tensor) -> None:
        probabilities, classes = logits.float().softmax(dim=-1).max(dim=-1)
        outputs.append((classes.tolist(), probabilities.tolist()))

    trained.model.register_forward_hook(keep_outputs)
    trained.evaluate(Options(split), change=keep_targets)
    samples = iter(trained.indices(Options(split)))
    rows: list[dict[str, Any]] = []
    for batch, predicted in zip(targets, outputs, strict=True):
        for *values, sample in zip(batch, *predicted, samples, strict=False):
            tags = enumerate(zip(*values, strict=False)) if words else [(0, values)]
            for word, (target, prediction, probability) in tags:
                if target != UNTAGGED:
                    rows.append(
                        {
                            "sample": sample,
                            **({"word": word} if words else {}),
                            "target": task.classes[target],
                            "prediction": task.classes[prediction],
                            "probability": probability,
                        }
                    )
    return DataFrame(rows).sort_values("sample", kind="stable", ignore_index=True)
