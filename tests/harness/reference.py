"""The regularizers a second time: slow loops over single float64 numbers, written from the papers' formulas.

Nothing here is shared with the package: the tests compare the two. Every function takes one row or one matrix and
follows one numbered formula. Gradients come from autograd through the loops.

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


# Which keys a draw drops.


def grow(unit: str, seeds: Row, window: int, grid: Grid | None, prefix: int) -> list[bool]:
    """The keys of a row that its seeds drop."""
    if unit in ("element", "column"):
        return grow_window(seeds, window)
    assert grid is not None
    return grow_block(seeds, window, grid, prefix) if unit == "block" else grow_cross(seeds, window, grid, prefix)


def grow_window(seeds: Row, w: int) -> list[bool]:
    """DropAttention, Algorithm 1, line 6: for each zero position M_ij, M_i,j : M_i,j+w-1 are set to 0."""
    dropped = [False] * len(seeds)
    for j, seed in enumerate(seeds):
        if seed:
            for offset in range(w):
                if j + offset < len(seeds):
                    dropped[j + offset] = True
    return dropped


def grow_block(seeds: Row, s: int, grid: Grid, prefix: int) -> list[bool]:
    """DropKey, Section 3.2, DropKey-Block: contiguous patches in a square window; seeds in the valid region."""
    dropped = [False] * len(seeds)
    for row, column in valid_seeds(s, grid):
        if seeds[prefix + row * grid[1] + column]:
            for down in range(min(s, *grid)):
                for right in range(min(s, *grid)):
                    dropped[prefix + (row + down) * grid[1] + column + right] = True
    return dropped


def grow_cross(seeds: Row, s: int, grid: Grid, prefix: int) -> list[bool]:
    """DropKey, Section 3.2, DropKey-Cross: the rows and columns of a valid seed."""
    dropped = [False] * len(seeds)
    for row, column in valid_seeds(s, grid):
        if seeds[prefix + row * grid[1] + column]:
            for y in range(grid[0]):
                for x in range(grid[1]):
                    if row <= y < row + min(s, *grid) or column <= x < column + min(s, *grid):
                        dropped[prefix + y * grid[1] + x] = True
    return dropped


def valid_seeds(s: int, grid: Grid) -> list[tuple[int, int]]:
    """The (n_h − s + 1)(n_w − s + 1) upper left corners of windows in the grid."""
    s = min(s, *grid)
    return [(row, column) for row in range(grid[0] - s + 1) for column in range(grid[1] - s + 1)]


def seed_ratio(unit: str, ratio: float, window: int, grid: Grid | None) -> float:
    """γ of DropAttention's Algorithm 1, line 4; d_block and d_cross of DropKey's Section 3.2."""
    if unit in ("element", "column"):
        return ratio / window
    assert grid is not None
    n_h, n_w = grid
    s = min(window, n_h, n_w)
    placed = (n_h * n_w) / ((n_h - s + 1) * (n_w - s + 1))
    return ratio / s**2 * placed if unit == "block" else ratio / (s * (n_h + n_w - s)) * placed


def rows_by_probability(
    unit: str, ratio: float, window: int, keys: int, grid: Grid | None, prefix: int
) -> dict[tuple[bool, ...], float]:
    """Every set of dropped keys that a row can have, with its exact probability, by enumeration of all seeds."""
    p = seed_ratio(unit, ratio, window, grid)
    if unit in ("element", "column"):
        places = list(range(keys))
    else:
        assert grid is not None
        places = [prefix + row * grid[1] + column for row, column in valid_seeds(window, grid)]
    found: dict[tuple[bool, ...], float] = {}
    for chosen in product((False, True), repeat=len(places)):
        seeds = [False] * keys
        for place, seed in zip(places, chosen, strict=True):
            seeds[place] = seed
        row = tuple(grow(unit, seeds, window, grid, prefix))
        found[row] = found.get(row, 0.0) + p ** sum(chosen) * (1 - p) ** (len(chosen) - sum(chosen))
    return found


def seeds_over(unit: str, window: int, keys: int, grid: Grid | None, prefix: int) -> list[int]:
    """For each key how many seeds would drop it, by trying each of them alone."""
    over = [0] * keys
    for seed in range(keys):
        for key, dropped in enumerate(grow(unit, [place == seed for place in range(keys)], window, grid, prefix)):
            over[key] += dropped
    return over


# What attention makes of it.


def allowed(bias: Sequence[float]) -> list[bool]:
    """Which keys of a row an additive mask lets be attended to: none at −inf, at the dtype's least number, or 80 and
    more below the best of the row (harness.attention.UNSEEN)."""
    least = torch.finfo(torch.float64).min
    return [b > least / 2 and b > max(bias) - 80.0 for b in bias]


def softmax(logits: Sequence[Tensor], present: Row) -> list[Tensor]:
    """DropKey, Eq. 2 and 14, over the keys that are present; 0 elsewhere, and everywhere if none is."""
    if not any(present):
        return [torch.zeros((), dtype=torch.float64)] * len(logits)
    # e^(a−c) / Σ e^(b−c) is the same for every c: the largest logit keeps it in range.
    c = max(float(logit.detach()) for logit, here in zip(logits, present, strict=True) if here)
    terms = [
        torch.exp(logit - c) if here else torch.zeros((), dtype=torch.float64)
        for logit, here in zip(logits, present, strict=True)
    ]
    total = sum_of(terms)
    return [term / total for term in terms]


def masked_before(logits: Sequence[Tensor], visible: Row, countable: Row, dropped: Row) -> list[Tensor]:
    """DropKey, Eq. 12 to 14: dropped logits are −inf, then the softmax. Nothing goes where no countable key is left."""
    kept = [not drop for drop in dropped]
    if not any(keep and counts for keep, counts in zip(kept, countable, strict=True)):
        return softmax(logits, visible)
    return softmax(logits, [keep and seen for keep, seen in zip(kept, visible, strict=True)])


def masked_after(logits: Sequence[Tensor], visible: Row, countable: Row, dropped: Row) -> list[Tensor]:
    """DropKey, Eq. 1 and 2; DropAttention, Algorithm 1, lines 7 to 9: the softmax, the mask, then λ_j / sum(λ)."""
    weights = softmax(logits, visible)
    if not any(not drop and counts for drop, counts in zip(dropped, countable, strict=True)):
        return weights
    masked = [weight * (0.0 if drop else 1.0) for weight, drop in zip(weights, dropped, strict=True)]
    total = sum_of(masked)
    return [weight / total for weight in masked]


def divided(logits: Sequence[Tensor], visible: Row, dropped: Row, ratio: float) -> list[Tensor]:
    """Dropout on weights, and DropAttention's "traditional" rescaling (Section 4.2): the mask, then 1 / (1 − p)."""
    weights = softmax(logits, visible)
    return [weight * (0.0 if drop else 1.0 / (1.0 - ratio)) for weight, drop in zip(weights, dropped, strict=True)]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropped: Tensor,
    *,
    rescale: Literal["before", "after", "inverse"],
    ratio: float,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention (B, H, T, e) with the given dropped keys (B, H, T, S); the rest as in `harness.attention.attend`."""
    batch, heads, queries, size = q.shape
    keys, width = k.shape[2], v.shape[3]
    scale = 1.0 / math.sqrt(size) if scale is None else scale
    q_, k_, v_ = (numbers(tensor) for tensor in (q, k, v))
    dropped_ = dropped.expand(batch, heads, queries, keys).tolist()
    # A number for each place of the mask as it was given, so that a broadcast one gathers its gradients.
    bias = numbers(mask.expand(batch, heads, queries, keys)) if mask is not None else None
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                logits = [sum_of([q_[b][h][i][x] * k_[b][h][j][x] for x in range(size)]) * scale for j in range(keys)]
                visible = [not causal or j <= i for j in range(keys)]
                countable = visible
                if mask is not None and bias is not None and mask.dtype == torch.bool:
                    visible = countable = [seen and bool(bias[b][h][i][j]) for j, seen in enumerate(visible)]
                elif bias is not None:
                    added = [float(bias[b][h][i][j].detach()) if visible[j] else -math.inf for j in range(keys)]
                    visible = [number > -math.inf for number in added]
                    countable = allowed(added)
                    logits = [logit + bias[b][h][i][j] if visible[j] else logit for j, logit in enumerate(logits)]
                row = dropped_[b][h][i]
                if rescale == "before":
                    weights = masked_before(logits, visible, countable, row)
                elif rescale == "after":
                    weights = masked_after(logits, visible, countable, row)
                else:
                    weights = divided(logits, visible, row, ratio)
                # DropKey, Eq. 13; DropAttention, Eq. 10.
                out += [sum_of([weights[j] * v_[b][h][j][x] for j in range(keys)]) for x in range(width)]
    return torch.stack(out).reshape(batch, heads, queries, width)


def smoothing(p: Sequence[float], d: float) -> list[float]:
    """DropKey, Eq. 3: c_j = E[d_j / Σ d_j p_j], each d_j ~ Bernoulli(1 − d), by all 2^N masks.

    Where all keys are dropped the formula reads 0 / 0. The row then keeps its weights, as everywhere: a factor of 1.
    """
    c = [0.0] * len(p)
    for mask in product((0, 1), repeat=len(p)):
        probability = math.prod(1 - d if kept else d for kept in mask)
        total = math.fsum(kept * p_j for kept, p_j in zip(mask, p, strict=True))
        for j, kept in enumerate(mask):
            c[j] += probability * (kept / total if any(mask) else 1.0)
    return c


# Numbers out of tensors.


def numbers(tensor: Tensor) -> list[list[list[list[Tensor]]]]:
    """A tensor of 4 axes as nested lists of scalar tensors, with their gradients."""
    flat: Iterator[Tensor] = iter(tensor.reshape(-1).unbind()) if tensor.numel() else iter(())
    a, b, c, d = tensor.shape
    return [[[[next(flat) for _ in range(d)] for _ in range(c)] for _ in range(b)] for _ in range(a)]


def sum_of(terms: Sequence[Tensor]) -> Tensor:
    """Σ, term by term."""
    total = torch.zeros((), dtype=torch.float64)
    for term in terms:
        total = total + term
    return total
