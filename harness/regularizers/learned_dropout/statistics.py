"""Statistics of the masks of Learned Dropout, as its author logged them (Yan 2024, "Results")."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class MaskStatistics:
    """Sums over the elements of all masks of one site; `means` divides them.

    Attributes:
        entropy: −M log2 M.
        l1_norm: M²/2 or |M|, as in the penalty.
        near_one: M > 0.9.
        near_zero: M < 0.1.
        kept: the rounded mask, which multiplies the output; its mean is the share of ones.
        elements: number of elements.
    """

    entropy: Tensor | float = 0.0
    l1_norm: Tensor | float = 0.0
    near_one: Tensor | float = 0.0
    near_zero: Tensor | float = 0.0
    kept: Tensor | float = 0.0
    elements: int = 0

    def add(self, values: Tensor, rounded: Tensor, l1_norm: Tensor) -> None:
        """Add one forward pass: the mask, the rounded mask, and the mean L1 norm; without synchronizing a device."""
        count = values.numel()
        for name, mean in (
            ("entropy", entropy(values)),
            ("l1_norm", l1_norm),
            ("near_one", (values > 0.9).sum() / max(1, count)),
            ("near_zero", (values < 0.1).sum() / max(1, count)),
            ("kept", rounded.sum() / max(1, count)),
        ):
            setattr(self, name, getattr(self, name) + mean.double() * count)
        self.elements += count

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over all elements; NaN without elements."""
        names = [field.name for field in fields(self) if field.name != "elements"]
        return {name: float(getattr(self, name)) / self.elements if self.elements else float("nan") for name in names}


def entropy(values: Tensor) -> Tensor:
    """Return the mean of −M log2 M, 0 for an empty batch. The ε that keeps it finite at M = 0 is the source's, 1e-9."""
    positive = values.clamp_min(0.0)
    return (-positive * torch.log2(positive + 1e-9)).sum() / max(1, values.numel())
