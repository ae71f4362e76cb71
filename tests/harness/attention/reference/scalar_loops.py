"""Independent reference of the regularizers: slow loops over float64 scalars, written from the papers' formulas.

It shares no code with the package. Every function takes one row or one matrix and implements one numbered formula.
Gradients come from autograd through the loops.

DropKey: Li et al. 2023, DropAttention: Zehui et al. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import torch
from torch import Tensor

Row = Sequence[bool]
Grid = tuple[int, int]


# Dropped keys.


def dilate(unit: str, starts: Row, window: int, grid: Grid | None, prefix: int) -> list[bool]:
    """Return the keys of a row that its window starts drop."""
    if unit in ("element", "column"):
        return dilate_window(starts, window)
    assert grid is not None
    return dilate_block(starts, window, grid, prefix) if unit == "block" else dilate_cross(starts, window, grid, prefix)


def dilate_window(starts: Row, w: int) -> list[bool]:
    """Apply DropAttention, Algorithm 1, line 6: for each zero position M_ij, M_i,j : M_i,j+w-1 are set to 0."""
    dropped = [False] * len(starts)
    for j, start in enumerate(starts):
        if start:
            for offset in range(w):
                if j + offset < len(starts):
                    dropped[j + offset] = True
    return dropped


def dilate_block(starts: Row, s: int, grid: Grid, prefix: int) -> list[bool]:
    """Apply DropKey-Block (DropKey, Section 3.2): contiguous patches in a square window, starts in the valid region."""
    dropped = [False] * len(starts)
    for row, column in valid_starts(s, grid):
        if starts[prefix + row * grid[1] + column]:
            for down in range(min(s, *grid)):
                for right in range(min(s, *grid)):
                    dropped[prefix + (row + down) * grid[1] + column + right] = True
    return dropped


def dilate_cross(starts: Row, s: int, grid: Grid, prefix: int) -> list[bool]:
    """Apply DropKey-Cross (DropKey, Section 3.2): the rows and columns of a valid start."""
    dropped = [False] * len(starts)
    for row, column in valid_starts(s, grid):
        if starts[prefix + row * grid[1] + column]:
            for y in range(grid[0]):
                for x in range(grid[1]):
                    if row <= y < row + min(s, *grid) or column <= x < column + min(s, *grid):
                        dropped[prefix + y * grid[1] + x] = True
    return dropped


def valid_starts(s: int, grid: Grid) -> list[tuple[int, int]]:
    """Return the (n_h − s + 1)(n_w − s + 1) upper left corners of windows in the grid."""
    s = min(s, *grid)
    return [(row, column) for row in range(grid[0] - s + 1) for column in range(grid[1] - s + 1)]


def start_prob(unit: str, ratio: float, window: int, grid: Grid | None) -> float:
    """Return γ of DropAttention's Algorithm 1, line 4; d_block and d_cross of DropKey's Section 3.2."""
    if unit in ("element", "column"):
        return ratio / window
    assert grid is not None
    n_h, n_w = grid
    s = min(window, n_h, n_w)
    correction = (n_h * n_w) / ((n_h - s + 1) * (n_w - s + 1))
    return ratio / s**2 * correction if unit == "block" else ratio / (s * (n_h + n_w - s)) * correction


def rows_by_probability(
    unit: str, ratio: float, window: int, keys: int, grid: Grid | None, prefix: int
) -> dict[tuple[bool, ...], float]:
    """Return every possible set of dropped keys of a row and its exact probability, by enumeration of all starts."""
    p = start_prob(unit, ratio, window, grid)
    if unit in ("element", "column"):
        valid_keys = list(range(keys))
    else:
        assert grid is not None
        valid_keys = [prefix + row * grid[1] + column for row, column in valid_starts(window, grid)]
    law: dict[tuple[bool, ...], float] = {}
    for outcome in product((False, True), repeat=len(valid_keys)):
        starts = [False] * keys
        for key, start in zip(valid_keys, outcome, strict=True):
            starts[key] = start
        row = tuple(dilate(unit, starts, window, grid, prefix))
        law[row] = law.get(row, 0.0) + p ** sum(outcome) * (1 - p) ** (len(outcome) - sum(outcome))
    return law


def starts_over(unit: str, window: int, keys: int, grid: Grid | None, prefix: int) -> list[int]:
    """Return the number of starts that would drop each key, by trying each start alone."""
    over = [0] * keys
    for start in range(keys):
        for key, dropped in enumerate(dilate(unit, [other == start for other in range(keys)], window, grid, prefix)):
            over[key] += dropped
    return over


# Attention with dropped keys.


def allowed(bias: Sequence[float]) -> list[bool]:
    """Return the keys of a row that an additive mask allows: not −inf, not the dtype's minimum, and less than 80 below
    the maximum of the row (dropbench.harness.attention.reference.sdpa.MASKED_LOGIT_GAP)."""
    minimum = torch.finfo(torch.float64).min
    return [b > minimum / 2 and b > max(bias) - 80.0 for b in bias]


def softmax(logits: Sequence[Tensor], present: Row) -> list[Tensor]:
    """Return the softmax (DropKey, Eq. 2 and 14) over the present keys; 0 elsewhere, and everywhere if none is."""
    if not any(present):
        return [torch.zeros((), dtype=torch.float64)] * len(logits)
    # e^(a−c) / Σ e^(b−c) is the same for every c: the largest logit keeps it in range.
    c = max(float(logit.detach()) for logit, keep in zip(logits, present, strict=True) if keep)
    terms = [
        torch.exp(logit - c) if keep else torch.zeros((), dtype=torch.float64)
        for logit, keep in zip(logits, present, strict=True)
    ]
    total = sum_of(terms)
    return [term / total for term in terms]


def masked_after(
    logits: Sequence[Tensor], visible: Row, countable: Row, dropped: Row, *, detached: bool = False
) -> list[Tensor]:
    """Apply softmax, mask, then λ_j / sum(λ) (DropKey, Eq. 1 and 2; DropAttention, Algorithm 1, lines 7 to 9).

    The sum is a constant if `detached`.
    """
    weights = softmax(logits, visible)
    if not any(not drop and counts for drop, counts in zip(dropped, countable, strict=True)):
        return weights
    masked = [weight * (0.0 if drop else 1.0) for weight, drop in zip(weights, dropped, strict=True)]
    total = sum_of(masked)
    return [weight / (total.detach() if detached else total) for weight in masked]


def divided(logits: Sequence[Tensor], visible: Row, dropped: Row, ratio: float) -> list[Tensor]:
    """Apply dropout to the weights (DropAttention's "traditional" rescaling, Section 4.2): mask, then 1 / (1 − p)."""
    weights = softmax(logits, visible)
    return [weight * (0.0 if drop else 1.0 / (1.0 - ratio)) for weight, drop in zip(weights, dropped, strict=True)]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropped: Tensor,
    *,
    rescale: Literal["after", "detached", "inverse"],
    ratio: float,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return attention (B, H, T, e) with dropped keys (B, H, T, S); other arguments as in `attend`."""
    batch, heads, queries, size = q.shape
    keys, width = k.shape[2], v.shape[3]
    scale = 1.0 / math.sqrt(size) if scale is None else scale
    q_, k_, v_ = (numbers(tensor) for tensor in (q, k, v))
    dropped_ = dropped.expand(batch, heads, queries, keys).tolist()
    # One scalar per cell of the broadcast mask, so that its gradients accumulate.
    bias = numbers(mask.expand(batch, heads, queries, keys)) if mask is not None else None
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                logits = [sum_of([q_[b][h][i][x] * k_[b][h][j][x] for x in range(size)]) * scale for j in range(keys)]
                visible = [not causal or j <= i for j in range(keys)]
                countable = visible
                if mask is not None and bias is not None and mask.dtype == torch.bool:
                    visible = countable = [sees and bool(bias[b][h][i][j]) for j, sees in enumerate(visible)]
                elif bias is not None:
                    added = [float(bias[b][h][i][j].detach()) if visible[j] else -math.inf for j in range(keys)]
                    visible = [number > -math.inf for number in added]
                    countable = allowed(added)
                    logits = [logit + bias[b][h][i][j] if visible[j] else logit for j, logit in enumerate(logits)]
                row = dropped_[b][h][i]
                if rescale in ("after", "detached"):
                    weights = masked_after(logits, visible, countable, row, detached=rescale == "detached")
                else:
                    weights = divided(logits, visible, row, ratio)
                # DropKey, Eq. 13; DropAttention, Eq. 10.
                out += [sum_of([weights[j] * v_[b][h][j][x] for j in range(keys)]) for x in range(width)]
    return torch.stack(out).reshape(batch, heads, queries, width)


# Tensors as scalars.


def numbers(tensor: Tensor) -> list[list[list[list[Tensor]]]]:
    """Return a 4-D tensor as nested lists of scalar tensors, with their gradients."""
    flat: Iterator[Tensor] = iter(tensor.reshape(-1).unbind()) if tensor.numel() else iter(())
    a, b, c, d = tensor.shape
    return [[[[next(flat) for _ in range(d)] for _ in range(c)] for _ in range(b)] for _ in range(a)]


def sum_of(terms: Sequence[Tensor]) -> Tensor:
    """Add the terms one by one."""
    total = torch.zeros((), dtype=torch.float64)
    for term in terms:
        total = total + term
    return total
