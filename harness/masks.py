"""Which keys are dropped: random masks for each drop unit, with True for a dropped key.

A draw has two steps: seeds, each by itself with one probability, and the keys that every seed takes with it. The keys
are always one flat axis: prefix tokens first, then the grid row by row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from harness.regularizers.drop import Unit


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
      With a window w each seed drops w keys, from its own to the right (DropAttention, Section 4.1, Algorithm 1).
    - block: each seed drops an s × s window of the key grid; cross: s whole rows and s whole columns (DropKey,
      Section 3.2, "Structured DropKey"). Drawn for each query, as DropKey's are. Prefix tokens are never dropped by
      these two.

    `ratio` is the papers' d or p. At window 1 (cross excepted) every key is dropped with that probability; otherwise it
    is an upper bound of the share of dropped keys, because windows overlap and, in sequences, are cut off at the end.
    `seed_probability` has the papers' formulas; docs/regularizers.md has the exact shares.

    Args:
        unit: what is dropped at once.
        ratio: drop ratio in [0, 1).
        window: window size w or s, in tokens; s is at most the grid's shorter side.
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
    if unit in ("block", "cross") and (grid is None or grid[0] * grid[1] + prefix != keys):
        raise ValueError(f"unit '{unit}' needs the grid of the {keys} keys, got grid {grid} and prefix {prefix}")
    rows = 1 if unit == "column" else queries
    seeds = _bernoulli((batch, heads, rows, keys), seed_probability(unit, ratio, window, grid), device)
    return grow(unit, seeds, window, grid=grid, prefix=prefix)


def seed_probability(unit: Unit, ratio: float, window: int, grid: tuple[int, int] | None = None) -> float:
    """With what probability a key that may be a seed is one.

    - element, column: γ = p / w (DropAttention, Algorithm 1, line 4).
    - block: d / s² · n_h·n_w / ((n_h − s + 1)(n_w − s + 1)); cross: d / (s(n_h + n_w − s)) · the same (DropKey,
      Section 3.2). Neither is ever above d.

    Raises:
        ValueError: block or cross without a grid.
    """
    if unit in ("element", "column"):
        return ratio / window
    high, wide, side = _sides(unit, window, grid)
    area = side * side if unit == "block" else side * (high + wide - side)
    return ratio / area * (high * wide) / ((high - side + 1) * (wide - side + 1))


def grow(unit: Unit, seeds: Tensor, window: int, *, grid: tuple[int, int] | None = None, prefix: int = 0) -> Tensor:
    """The keys that the seeds drop.

    Of block and cross only valid seeds count: those whose window lies within the grid, the seed being its upper left
    corner. What grows past the end of a sequence is cut off (DropAttention, Algorithm 1, line 6).

    Args:
        unit: what is dropped at once.
        seeds: boolean (…, S).
        window: window size w or s, in tokens.
        grid: rows and columns of the keys; needed by block and cross.
        prefix: key tokens before the grid.

    Returns:
        boolean (…, S), True where dropped.

    Raises:
        ValueError: block or cross without a grid.
    """
    if unit in ("element", "column"):
        return _grow_right(seeds, window)
    high, wide, side = _sides(unit, window, grid)
    # Rows and columns apart: with the places of one flat axis, compiled code divides for each key again.
    rows, columns = (torch.arange(size, device=seeds.device) <= size - side for size in (high, wide))
    valid = (rows[:, None] & columns).flatten()
    seeds = seeds & torch.cat([valid.new_zeros(prefix), valid])
    if unit == "block":
        # A valid window never reaches the end of its row, so it may be grown along the flat axis.
        return _grow_right(_grow_right(seeds, side), side, step=wide)
    cells = seeds[..., prefix:].unflatten(-1, (high, wide)).to(torch.uint8)
    lost_rows, lost_columns = _grow_right(cells.amax(-1), side), _grow_right(cells.amax(-2), side)
    crossed = (lost_rows[..., :, None] | lost_columns[..., None, :]).flatten(-2).bool()
    return torch.cat([seeds[..., :prefix], crossed], dim=-1)


def _sides(unit: Unit, window: int, grid: tuple[int, int] | None) -> tuple[int, int, int]:
    """Rows and columns of the grid, and the window's side, which is at most the shorter of them."""
    if grid is None:
        raise ValueError(f"unit '{unit}' needs the grid of the keys")
    return *grid, min(window, *grid)


def _grow_right(seeds: Tensor, window: int, step: int = 1) -> Tensor:
    """Each seed's place along the last axis and the `window` − 1 places `step` apart to its right."""
    grown = seeds.clone() if window > 1 else seeds
    for shift in range(step, min(window * step, seeds.shape[-1]), step):
        grown[..., shift:] |= seeds[..., :-shift]
    return grown


def _bernoulli(shape: tuple[int, ...], probability: float, device: torch.device | None) -> Tensor:
    """True with `probability`, decided by 16 random bits each: a fifth of the time that `torch.rand` takes on a CPU.

    The probability is not rounded: of the two 16-bit thresholds around it, one is drawn for the whole call, such that
    each decision has exactly `probability`. (Above 1 − 2⁻¹⁶ it is 1 − 2⁻¹⁶.) Two decisions of a call are correlated
    by that, with a covariance of at most 2⁻³⁴; by nothing else.
    """
    count = math.prod(shape)
    words = torch.randint(-(2**63), 2**63 - 1, ((count + 3) // 4,), device=device)
    bits = words.view(torch.int16)[:count].view(shape)
    exact = probability * 2**16
    whole = int(exact)
    threshold = (torch.rand((), device=device) < exact - whole) + (whole - 2**15)
    return bits < threshold.clamp(max=2**15 - 1).to(torch.int16)
