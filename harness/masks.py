"""Which keys are dropped: random masks for each drop unit, with True for a dropped key.

A draw has two steps: seeds, each by itself with one probability, and the keys that every seed takes with it. The keys
are always one flat axis: prefix tokens first, then the grid row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from harness.philox import WORD, halfwords, new_key, philox
from harness.regularizers.drop import Unit

UNITS: tuple[Unit, ...] = get_args(Unit)
"""By their numbers in all kernels."""


@dataclass(frozen=True)
class Draw:
    """What is dropped in one pass through one place of a model; every decision is a function of this and of its place.

    Attributes:
        unit, window, grid, prefix: as of `dropped_keys`.
        probability: that of a seed, see `seed_probability`.
        key: 64 bits, an int64 tensor of no axes on the CPU.
        stream: tells the places of a model apart that have the same key.
    """

    unit: Unit
    probability: float
    window: int
    grid: tuple[int, int] | None
    prefix: int
    key: Tensor
    stream: int = 0


def new_draw(
    unit: Unit, ratio: float, window: int, keys: int, *, grid: tuple[int, int] | None = None, prefix: int = 0,
    stream: int = 0,
) -> Draw:  # fmt: skip
    """A draw with a key from torch's default generator on the CPU, whatever the device.

    Raises:
        ValueError: block or cross without a grid, or a grid that does not have the keys' number.
    """
    if unit in ("block", "cross") and (grid is None or grid[0] * grid[1] + prefix != keys):
        raise ValueError(f"unit '{unit}' needs the grid of the {keys} keys, got grid {grid} and prefix {prefix}")
    return Draw(unit, seed_probability(unit, ratio, window, grid), window, grid, prefix, new_key(), stream)


def drawn_keys(draw: Draw, shape: tuple[int, int, int, int], device: torch.device | None = None) -> Tensor:
    """The dropped keys of a draw as `dropped_keys` gives them, in torch's operations."""
    found: Tensor = torch.ops.dropbench.drawn_keys(
        draw.key, list(shape), draw.unit, draw.probability, draw.window, list(draw.grid or ()), draw.prefix,
        draw.stream, device or torch.device("cpu"),
    )  # fmt: skip
    return found


# One operation for compilers: of whole numbers and truth values torch's own makes code that C++ refuses (2.13).
@torch.library.custom_op("dropbench::drawn_keys", mutates_args=())
def _drawn_keys(
    key: Tensor, shape: list[int], unit: str, probability: float, window: int, grid: list[int], prefix: int,
    stream: int, device: torch.device,
) -> Tensor:  # fmt: skip
    draw = draw_of(key, unit, probability, window, grid, prefix, stream)
    batch, heads, queries, keys = shape
    bits = halfwords(key, stream, (batch, heads, 1 if unit == "column" else queries, keys), device)
    seeds = bits < seed_threshold(key, stream, probability)
    return grow(draw.unit, seeds, window, grid=draw.grid, prefix=prefix)


@_drawn_keys.register_fake
def _(key: Tensor, shape: list[int], unit: str, *rest: Any) -> Tensor:
    batch, heads, queries, keys = shape
    return torch.empty(batch, heads, 1 if unit == "column" else queries, keys, dtype=torch.bool, device=rest[-1])


def draw_of(
    key: Tensor, unit: str, probability: float, window: int, grid: list[int], prefix: int, stream: int
) -> Draw:  # fmt: skip
    """A draw from what an operation of torch is given, which may be numbers, texts and lists of numbers."""
    named = next(one for one in UNITS if one == unit)
    return Draw(named, probability, window, (grid[0], grid[1]) if grid else None, prefix, key, stream)


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
    return drawn_keys(new_draw(unit, ratio, window, shape[-1], grid=grid, prefix=prefix), shape, device)


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


def seed_threshold(key: Tensor | int, stream: int, probability: float) -> Tensor | int:
    """A key is a seed where its 16 bits are below this: 0 to 2¹⁶, of the type of `key`.

    The probability is not rounded: of the two thresholds around it, one is drawn for the whole draw, such that each
    decision has exactly `probability`. Two decisions of a draw are correlated by that, with a covariance of at most
    2⁻³⁴; by nothing else.
    """
    exact = probability * 2**16
    whole = int(exact)
    # A block that no key has.
    word = philox((WORD, WORD, WORD, stream), key)[0]
    return whole + (word < round((exact - whole) * 2**32))
