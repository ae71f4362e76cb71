"""Which keys are dropped: random masks for each drop unit, with True for a dropped key."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Unit = Literal["element", "column", "block", "cross"]


def dropped_keys(
    unit: Unit,
    ratio: float,
    window: int,
    shape: tuple[int, int, int, int],
    *,
    grid: tuple[int, int] | None = None,
    prefix: int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """Draw a mask of dropped keys, True where dropped.

    - element: each (query, key) pair by itself; column: one draw a key for all queries of a sample and head.
      A window w > 1 draws seeds with probability ratio / w and drops w keys from each seed on, to the right
      (DropAttention, Section 4.1 and Algorithm 1).
    - block: seeds with probability ratio / s² · n_h·n_w / ((n_h−s+1)(n_w−s+1)) among the valid ones, each dropping
      an s × s window of the key grid; cross: seeds with ratio / (s(n_h+n_w−s)) · the same, each dropping s rows and
      s columns (DropKey, Section 3.2, "Structured DropKey"). Drawn for each query, as DropKey's are. Prefix tokens
      are never dropped by these two.

    Args:
        unit: what is dropped at once.
        ratio: drop ratio in [0, 1).
        window: window size w or s, in tokens.
        shape: (B, H, T, S).
        grid: rows and columns of the keys; needed by block and cross.
        prefix: key tokens before the grid.
        device: where to make the mask.

    Returns:
        boolean, (B, H, T, S), or (B, H, 1, S) for columns.

    Raises:
        ValueError: block or cross without a grid, or a grid that does not have the keys' number.
    """
    batch, heads, queries, keys = shape
    if unit in ("element", "column"):
        rows = queries if unit == "element" else 1
        seeds = _bernoulli((batch, heads, rows, keys), ratio / window, device)
        return _grow_right(seeds, window) if window > 1 else seeds
    if grid is None or grid[0] * grid[1] + prefix != keys:
        raise ValueError(f"unit '{unit}' needs the grid of the {keys} keys, got grid {grid} and prefix {prefix}")
    high, wide = grid
    size = min(window, high, wide)
    valid = (high - size + 1, wide - size + 1)
    area = size * size if unit == "block" else size * (high + wide - size)
    probability = min(1.0, ratio / area * (high * wide) / (valid[0] * valid[1]))
    seeds = _bernoulli((batch, heads, queries, *valid), probability, device)
    if unit == "block":
        dropped = _grow(_grow(seeds, size, axis=-1), size, axis=-2)
    else:
        dropped = _grow(seeds.any(-1), size, axis=-1)[..., :, None] | _grow(seeds.any(-2), size, axis=-1)[..., None, :]
    dropped = dropped.flatten(-2)
    return torch.cat([dropped.new_zeros(batch, heads, queries, prefix), dropped], dim=-1) if prefix else dropped


def _bernoulli(shape: tuple[int, ...], probability: float, device: torch.device | None) -> Tensor:
    return torch.rand(shape, device=device) < probability


def _grow_right(seeds: Tensor, window: int) -> Tensor:
    """Drop `window` keys from each seed on; what grows past the end is cut off (Algorithm 1, line 6)."""
    dropped = seeds.clone()
    for offset in range(1, min(window, seeds.shape[-1])):
        dropped[..., offset:] |= seeds[..., :-offset]
    return dropped


def _grow(seeds: Tensor, size: int, axis: int) -> Tensor:
    """Widen `axis` from its valid seeds n − size + 1 to n: each seed covers `size` places from its own on."""
    count = seeds.shape[axis]
    shape = list(seeds.shape)
    shape[axis] = count + size - 1
    grown = seeds.new_zeros(shape)
    for offset in range(size):
        grown.narrow(axis, offset, count).logical_or_(seeds)
    return grown
