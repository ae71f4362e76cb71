"""Random subsets of samples of different length."""

from __future__ import annotations

import torch
from torch import Tensor


def random_subset(eligible: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Draw a random share of each row's eligible positions, uniformly over all subsets of that size.

    Args:
        eligible: boolean (B, T), on the CPU.
        share: in [0, 1], of each row's eligible positions, rounded to a count; at least one position is not drawn.
        generator: random generator on the CPU.

    Returns:
        boolean (B, T), True at the drawn positions.
    """
    num_eligible = eligible.sum(dim=1, keepdim=True)
    num_drawn = (num_eligible * share).round().clamp(max=num_eligible - 1)
    rank = torch.rand(eligible.shape, generator=generator).masked_fill(~eligible, 2.0).argsort(dim=1).argsort(dim=1)
    return eligible & (rank < num_drawn)
