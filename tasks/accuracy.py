"""Accuracy of classifiers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tasks.metrics import ACCURACY


def accuracy(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return the share of correct predictions, in percent.

    Args:
        model: inputs → logits (B, classes).
        batches: inputs and labels (B,).

    Raises:
        ValueError: there is no batch.
    """
    from sklearn.metrics import accuracy_score

    predictions, targets = [], []
    for inputs, labels in batches:
        predictions.append(model(inputs).argmax(dim=-1).cpu())
        targets.append(labels.cpu())
    if not predictions:
        raise ValueError("an empty split has no accuracy")
    return {ACCURACY.name: 100.0 * float(accuracy_score(torch.cat(targets), torch.cat(predictions)))}
