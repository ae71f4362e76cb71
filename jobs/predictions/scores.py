"""Metrics as functions of counts that are added over examples, so that examples can be resampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.predictions.schema import Header, Ratio, Row
from dropbench.tasks.class_metrics import CLASS_METRICS, class_counts, pearson_of, score_counts

Floats = NDArray[np.float64]
MIN_SCORE = 0.5
"""Smallest score of a detection that is listed."""


@dataclass(frozen=True, eq=False)
class ExampleScores:
    """A metric over some examples.

    Attributes:
        counts: (n, k): what each example adds.
        value: function of sums of them (…, k), which returns the metric (…).
        correct: (n,) booleans if the metric is the share of correct examples; else None.
    """

    counts: Floats
    value: Callable[[Floats], Floats]
    correct: NDArray[np.bool_] | None = None

    def per_example(self) -> list[float | None]:
        """Return the metric of each example; None if it adds nothing, such as a sentence without spans."""
        values = self.value(self.counts).tolist()
        return [value if any(row) else None for value, row in zip(values, self.counts.tolist(), strict=True)]


def example_scores(header: Header, rows: Sequence[Row]) -> dict[str, ExampleScores]:
    """Return the metrics of a file that are functions of added counts: ratios, BLEU, and those of `class_metrics`."""
    scores = {name: _ratio_scores(ratio, rows) for name, ratio in header.metrics.items()}
    for name, options in header.corpus.items():
        if name in ("bleu", "sacrebleu") and options.get("scorer") == name:
            from dropbench.tasks.translation.bleu import Scorer, corpus_bleu

            scorer = Scorer(str(options["language"]), tokenized=bool(options["tokenized"]))
            counts = [scorer.counts(name, row["prediction"], row["target"]) for row in rows]
            scores[name] = ExampleScores(np.array(counts, np.float64).reshape(len(rows), -1), corpus_bleu)
        elif name in CLASS_METRICS or name == "pearson":
            targets, predictions = ([row[column] for row in rows] for column in ("target", "prediction"))
            if name == "pearson":
                scores[name] = ExampleScores(score_counts(targets, predictions), pearson_of)
            else:
                counts_of = class_counts(targets, predictions, len(header.classes))
                scores[name] = ExampleScores(counts_of, CLASS_METRICS[name])
    return scores


def _ratio_scores(ratio: Ratio, rows: Sequence[Row]) -> ExampleScores:
    counts = np.array([ratio.counts(row) for row in rows], np.float64).reshape(-1, 2)

    def value(sums: Floats) -> Floats:
        divisor = sums[..., 1]
        shares = np.divide(ratio.scale * sums[..., 0], divisor, out=np.zeros(divisor.shape), where=divisor != 0)
        return np.exp(np.minimum(shares, 700.0)) if ratio.exponential else shares

    is_share = not ratio.over and not ratio.exponential and bool(np.isin(counts[:, 0], (0, 1)).all())
    return ExampleScores(counts, value, counts[:, 0] == 1 if is_share else None)


def prediction_text(header: Header, row: Row) -> str | None:
    """Return the prediction for an example as text; None if it has none that can be compared, such as a mesh."""
    if "prediction" in header.columns:
        value = display(header, "prediction", row)
        return value if isinstance(value, str) else None
    if {"labels": "classes", "scores": "numbers"}.items() <= header.columns.items():
        detections = zip(row["labels"], row["scores"], strict=True)
        names = [header.classes[label] for label, score in detections if score >= MIN_SCORE]
        return ", ".join(f"{names.count(name)} {name}" for name in sorted({*names})) or "none"
    return None


def display(header: Header, column: str, row: Row) -> Any:
    """Return a value as tables show it, with names of classes; None for lists of numbers."""
    kind, value = header.columns.get(column), header.named(column, row[column])
    if kind == "classes":
        return " ".join(value)
    return None if kind in ("numbers", "matrix") else value
