"""Metrics of classes and of scores besides accuracy: by scikit-learn and scipy, and from counts that examples add.

The counts let examples be resampled: a metric is a function of their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError

Floats = NDArray[np.float64]


def class_scores(
    names: Sequence[str], targets: Sequence[int], predictions: Sequence[int], classes: int
) -> dict[str, float]:
    """Return metrics of predicted classes by name, in percent; 0 for a division by zero.

    Args:
        names: ``f1`` (of class 1 of two, as GLUE has it), ``f1-macro`` and ``matthews`` (the correlation).
        targets: the correct classes.
        predictions: the predicted classes.
        classes: their number.

    Raises:
        InputError: f1 of more than two classes.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    if "f1" in names and classes != 2:
        raise InputError(f"metric f1: of one class among two, and the data have {classes}: use f1-macro")
    scorers: dict[str, Callable[[], float]] = {
        "f1": lambda: f1_score(targets, predictions, zero_division=0),
        "f1-macro": lambda: f1_score(
            targets, predictions, labels=range(classes), average="macro", zero_division=0
        ),
        "matthews": lambda: matthews_corrcoef(targets, predictions),
    }  # fmt: skip
    return {name: 100.0 * float(scorers[name]()) for name in names if name in scorers}


def score_correlations(targets: Sequence[float], predictions: Sequence[float]) -> dict[str, float]:
    """Return the correlations ``pearson`` and ``spearman`` of predicted scores, in percent; 0 if one is constant."""
    from scipy.stats import pearsonr, spearmanr

    if len({*targets}) < 2 or len({*predictions}) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    correlations = {"pearson": pearsonr(targets, predictions), "spearman": spearmanr(targets, predictions)}
    return {name: 100.0 * float(result.statistic) for name, result in correlations.items()}


def class_counts(targets: Sequence[int], predictions: Sequence[int], classes: int) -> Floats:
    """Return what each example adds to the confusion matrix: (N, classes * classes), by target, then prediction."""
    counts = np.zeros((len(targets), classes * classes))
    counts[np.arange(len(targets)), np.asarray(targets, int) * classes + np.asarray(predictions, int)] = 1
    return counts


def f1_macro_of(sums: Floats) -> Floats:
    """Return the mean F1 of all classes, in percent, from sums (…, classes * classes) of `class_counts`."""
    scores: Floats = _f1(sums).mean(axis=-1)
    return scores


def f1_of(sums: Floats) -> Floats:
    """Return the F1 of class 1, in percent; see `f1_macro_of`."""
    scores: Floats = _f1(sums)[..., 1]
    return scores


def matthews_of(sums: Floats) -> Floats:
    """Return the Matthews correlation (Gorodkin 2004, for any number of classes), in percent; see `f1_macro_of`."""
    matrix = _square(sums)
    total, correct = matrix.sum(axis=(-2, -1)), np.trace(matrix, axis1=-2, axis2=-1)
    targets, predictions = matrix.sum(axis=-1), matrix.sum(axis=-2)
    spread = (total**2 - (targets**2).sum(axis=-1)) * (total**2 - (predictions**2).sum(axis=-1))
    return 100.0 * _ratio(correct * total - (targets * predictions).sum(axis=-1), np.sqrt(spread))


def score_counts(targets: Sequence[float], predictions: Sequence[float]) -> Floats:
    """Return what each example adds to the moments of a correlation: (N, 6), of scores less the means of all."""
    x, y = (np.asarray(values, np.float64) - np.mean(values) for values in (targets, predictions))
    return np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=-1)


def pearson_of(sums: Floats) -> Floats:
    """Return the Pearson correlation, in percent, from sums (…, 6) of `score_counts`."""
    n, x, y, xy, xx, yy = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * xx - x * x, 0.0) * np.maximum(n * yy - y * y, 0.0)
    return 100.0 * _ratio(n * xy - x * y, np.sqrt(spread))


CLASS_METRICS = {"f1": f1_of, "f1-macro": f1_macro_of, "matthews": matthews_of}
"""Metric → its function of summed `class_counts`."""


def _square(sums: Floats) -> Floats:
    classes = round(sums.shape[-1] ** 0.5)
    return sums.reshape(*sums.shape[:-1], classes, classes)


def _f1(sums: Floats) -> Floats:
    """Return the F1 of each class (…, classes), in percent."""
    matrix = _square(sums)
    correct = np.diagonal(matrix, axis1=-2, axis2=-1)
    return 100.0 * _ratio(2.0 * correct, matrix.sum(axis=-1) + matrix.sum(axis=-2))


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    numerator, denominator = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0)
