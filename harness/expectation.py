"""The mean of regularised attention weights over many draws (DropKey, Section 3.2, "Align Expectation")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.attention import allowed_keys, attention_logits, masked_softmax
from harness.regularizers.drop import AttentionDrop, Rescale, UnitDrop

if TYPE_CHECKING:
    from harness.regularizers.base import Regularizer
    from harness.site import Site

TINY = 1e-30
"""Where a draw leaves a row less weight than this, 1 / weight is too rough, and the softmax is computed again."""

DRAWS = 1024
BLOCK = {"cpu": 2**22, "cuda": 2**26}
"""So many draws, and pairs of a row and a draw, at a time: 16 MiB of float32 on a CPU, 256 MiB on a GPU."""


def expected_weights(q: Tensor, k: Tensor, site: Site, *, mask: Tensor | None, scale: float | None) -> Tensor:
    """The mean of a site's regularised weights over `site.draws` draws: what Monte Carlo evaluation attends with.

    The draws of one call are the same for all samples, heads and queries. The expectation of a row depends only on how
    that row's own keys are dropped, and that is alike in every row, so sharing the draws changes no expectation: it
    only lets the errors of different rows be correlated. In return all rows and draws are two matrix products.

    A regularizer that computes attention in a way of its own is asked so many times, draw by draw.

    Args:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        site: the place in the model, with its regularizer, ratio and number of draws.
        mask: boolean (True: may attend) or additive, broadcastable to (B, H, T, S); causality is in it already.
        scale: factor of the logits; None: d^-1/2.

    Returns:
        (B, H, T, S), at least in float32.
    """
    regularizer = site.regularizer
    assert regularizer is not None
    dtype = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        q, k = q.to(dtype), k.to(dtype)
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
        if not isinstance(regularizer, UnitDrop) or not _inherits(regularizer):
            return _draw_by_draw(regularizer, q, k, site, mask, scale)
        keys = k.shape[-2]
        logits = attention_logits(q, k, mask=mask, scale=scale)
        allowed = None if mask is None else allowed_keys(mask)
        kept = ~regularizer.dropped((site.draws, 1, 1, keys), site, q.device).view(site.draws, keys)
        return average_weights(logits, kept, rescale=regularizer.rescale, ratio=site.ratio, allowed=allowed)


def average_weights(
    logits: Tensor, kept: Tensor, *, rescale: Rescale, ratio: float, allowed: Tensor | None = None
) -> Tensor:
    """The mean over given draws of a row's regularised weights; every draw is applied to every row.

    With p the row's unregularised weights and m a draw, `renormalize` gives m_j p_j / Σ m p, and p itself where m
    leaves no key that the row may attend to. Its mean is p_j · mean(m_j / Σ m p), the p_j c_j of DropKey's Eq. 3: with
    all rows P (R, S) and all draws M (n, S) that is P ⊙ ((1 / (P Mᵀ)) M) / n. `inverse` gives m_j p_j / (1 − ratio),
    whose mean needs no more than the mean of each m_j.

    Args:
        logits: (…, S), scaled, with any mask added.
        kept: the draws, boolean (n, S), True for a key that is kept.
        rescale: how a row is rescaled.
        ratio: drop ratio, for `inverse`.
        allowed: boolean, broadcastable to `logits`: keys that may be attended to; None: all.

    Returns:
        (…, S), NaN where the row's logits have one.
    """
    weights = masked_softmax(logits)
    if rescale == "inverse":
        return weights * (kept.to(weights.dtype).mean(dim=0) / (1.0 - ratio))
    keys = logits.shape[-1]
    open_to = torch.ones_like(kept[:1]) if allowed is None else allowed
    open_to = open_to.expand(logits.shape).reshape(-1, keys)
    flat, rows = weights.reshape(-1, keys), logits.reshape(-1, keys)
    averaged = torch.empty_like(flat)
    block = BLOCK.get(flat.device.type, BLOCK["cpu"])
    step = min(len(kept), DRAWS)
    for start in range(0, len(flat), max(1, block // step)):
        part = slice(start, start + max(1, block // step))
        averaged[part] = _renormalized(flat[part], rows[part], open_to[part], kept, step, max(1, block // keys))
    return averaged.view_as(logits)


def _renormalized(weights: Tensor, logits: Tensor, allowed: Tensor, kept: Tensor, step: int, pairs: int) -> Tensor:
    """`average_weights` for a few rows (R, S), `step` draws at a time, `pairs` of a row and a draw where need be."""
    # A row that may attend to nothing is left as it is, as in training.
    live = allowed.any(dim=-1, keepdim=True)
    factors, rest = torch.zeros_like(weights), torch.zeros_like(weights)
    for start in range(0, len(kept), step):
        draws = kept[start : start + step]
        left = draws.to(weights.dtype)
        mass = weights @ left.T
        faint = mass < TINY
        factors += mass.reciprocal().masked_fill_(faint, 0.0) @ left
        for row, draw in _places(faint & live, pairs):
            rest.index_add_(0, row, _one_by_one(weights[row], logits[row], allowed[row] & draws[draw]))
    return torch.where(live, (weights * factors + rest) / len(kept), weights)


def _one_by_one(weights: Tensor, logits: Tensor, keys: Tensor) -> Tensor:
    """The renormalised weights of single (row, draw) pairs (N, S) by their softmax; `keys`: kept and allowed."""
    softmax = masked_softmax(logits.masked_fill(~keys, float("-inf")))
    return torch.where(keys.any(dim=-1, keepdim=True), softmax, weights)


def _places(which: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The places of True in (R, n) as rows and draws, `size` at a time."""
    if which.any():
        row, draw = which.nonzero(as_tuple=True)
        yield from zip(row.split(size), draw.split(size), strict=True)


def _draw_by_draw(
    regularizer: Regularizer, q: Tensor, k: Tensor, site: Site, mask: Tensor | None, scale: float | None
) -> Tensor:
    """The same by asking the regularizer for each draw: with unit vectors as values, its output is its weights."""
    unit = torch.eye(k.shape[-2], dtype=q.dtype, device=q.device).expand(*k.shape[:-1], -1)
    total = torch.zeros((), dtype=q.dtype, device=q.device)
    for _ in range(site.draws):
        total = total + regularizer.attend(q, k, unit, site, mask=mask, scale=scale)
    return total / site.draws


def _inherits(regularizer: UnitDrop) -> bool:
    """Whether it drops and attends as its base classes do, so that each row's keys are dropped alike."""
    kind = type(regularizer)
    unchanged = kind.dropped is UnitDrop.dropped and kind.attend is AttentionDrop.attend
    return unchanged and kind.attend_fast is UnitDrop.attend_fast
