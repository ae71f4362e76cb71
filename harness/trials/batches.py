"""Batches: nests of tuples, lists and dicts of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def repeat(batch: Any, number: int) -> Any:
    """Return a nest of tensors with the samples repeated along the first axis, the whole batch each time.

    Numbers, such as a count of tokens, are multiplied.
    """
    if isinstance(batch, Tensor):
        return torch.cat([batch] * number) if batch.dim() else batch * number
    if isinstance(batch, Mapping):
        return {key: repeat(value, number) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)(repeat(part, number) for part in batch)
    return batch * number if isinstance(batch, int | float) and not isinstance(batch, bool) else batch
