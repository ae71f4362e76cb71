"""Accuracy of classifiers, a metric shared by several tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.trials.metric import Metric

if TYPE_CHECKING:
    from torch import Tensor, nn

ACCURACY = Metric("accuracy")


def accuracy(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return the share of correct predictions, in percent.

    Args:
        model: inputs → logits (B, classes).
        batches: inputs and labels (B,).

    Raises:
        ValueError: there is no sample.
    """
    correct = total = 0
    for inputs, labels in batches:
        correct += int((model(inputs).argmax(dim=-1) == labels).sum())
        total += len(labels)
    if not total:
        raise ValueError("an empty split has no accuracy")
    return {ACCURACY.name: 100.0 * (correct / total)}
