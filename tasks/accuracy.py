"""Evaluation of classifiers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tasks.outlines.common import ACCURACY


def accuracy(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Share of right answers, in percent.

    Args:
        model: inputs → logits (B, classes).
        batches: inputs and labels (B,).

    Raises:
        ValueError: there is no sample.
    """
    from sklearn.metrics import accuracy_score

    found, wanted = [], []
    for inputs, labels in batches:
        found.append(model(inputs).argmax(dim=-1).cpu())
        wanted.append(labels.cpu())
    if not found:
        raise ValueError("an empty split has no accuracy")
    return {ACCURACY.name: 100.0 * float(accuracy_score(torch.cat(wanted), torch.cat(found)))}
