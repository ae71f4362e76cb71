"""Test metrics of classes and scores, and that resampled counts give the same values as scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.class_metrics import (
    CLASS_METRICS,
    class_counts,
    class_scores,
    pearson_of,
    score_correlations,
    score_counts,
)


def test_metrics_of_classes_by_hand() -> None:
    targets, predictions = [1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0]
    scores = class_scores(("f1", "f1-macro", "matthews"), targets, predictions, 2)
    assert scores["f1"] == pytest.approx(100 * 4 / 6)
    assert scores["f1-macro"] == pytest.approx(100 * (4 / 6 + 8 / 10) / 2)
    assert scores["matthews"] == pytest.approx(100 * (2 * 4 - 1 * 1) / (3 * 3 * 5 * 5) ** 0.5)
    assert class_scores(("f1", "matthews"), [1, 0], [0, 0], 2) == {"f1": 0.0, "matthews": 0.0}
    assert class_scores(("f1-macro",), [0, 1], [0, 1], 3) == {"f1-macro": pytest.approx(200 / 3)}  # class 2 counts
    with pytest.raises(InputError, match="use f1-macro"):
        class_scores(("f1",), [0, 1, 2], [0, 1, 2], 3)


@pytest.mark.parametrize("classes", [2, 4])
def test_counts_give_the_values_of_the_libraries(classes: int) -> None:
    random = np.random.RandomState(3)
    targets, predictions = random.randint(classes, size=(2, 300)).tolist()
    names = [name for name in CLASS_METRICS if classes == 2 or name != "f1"]
    sums = class_counts(targets, predictions, classes).sum(axis=0)
    values = {name: float(CLASS_METRICS[name](sums)) for name in names}
    assert values == pytest.approx(class_scores(names, targets, predictions, classes))
    resampled = np.stack([sums, np.zeros_like(sums)])
    assert [CLASS_METRICS[name](resampled).shape for name in names] == [(2,)] * len(names)
    scores, predicted = random.normal(2.5, 1, (2, 300)).tolist()
    correlations = score_correlations(scores, predicted)
    assert float(pearson_of(score_counts(scores, predicted).sum(axis=0))) == pytest.approx(correlations["pearson"])
    assert score_correlations([1.0, 2.0, 3.0, 4.0], [1.0, 8.0, 9.0, 9.5]) == pytest.approx(
        {"pearson": 86.26, "spearman": 100.0}, abs=0.01
    )
    assert score_correlations([1.0, 2.0], [3.0, 3.0]) == {"pearson": 0.0, "spearman": 0.0}
