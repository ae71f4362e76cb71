"""Random parts of samples of different length."""

from __future__ import annotations

import torch
from torch import Tensor


def random_subset(eligible: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """A random share of each row's eligible places, every subset of that size as likely as any other.

    Args:
        eligible: boolean (B, T), on the CPU.
        share: in [0, 1], of each row's eligible places, rounded to the nearest number; one at least is left out.
        generator: where to draw from, on the CPU.

    Returns:
        boolean (B, T), True at chosen places.
    """
    count = eligible.sum(dim=1, keepdim=True)
    wanted = (count * share).round().clamp(max=count - 1)
    order = torch.rand(eligible.shape, generator=generator).masked_fill(~eligible, 2.0).argsort(dim=1).argsort(dim=1)
    return eligible & (order < wanted)
