"""Mean of regularized attention weights over many drop masks (DropKey, Section 3.2, "Align Expectation")."""

from __future__ import annotations

import torch
from torch import Tensor

from dropbench.harness.attention.reference.sdpa import masked_softmax
from dropbench.harness.attention.reference.units import Rescale

MIN_KEPT_WEIGHT = 1e-30
"""If a mask keeps less than this of a row's weight, 1 / weight is too inaccurate, and the softmax is recomputed."""

MASKS_PER_BLOCK = 1024
BLOCK_PAIRS = {"cpu": 2**22, "cuda": 2**26}
"""(Row, mask) pairs processed at a time: 16 MiB of float32 on CPU, 256 MiB on GPU."""


def average_weights(
    logits: Tensor, keep_masks: Tensor, *, rescale: Rescale, ratio: float, allowed: Tensor | None = None
) -> Tensor:
    """Return the mean of a row's regularized weights over keep masks; every mask is applied to every row.

    With unregularized weights p and a mask m, `renormalize` gives m_j p_j / Σ m p, or p if m keeps no allowed key. The
    mean is p_j · mean(m_j / Σ m p), which is p_j c_j in DropKey's Eq. 3: with all rows P (R, S) and all masks M (n, S)
    it is P ⊙ ((1 / (P Mᵀ)) M) / n. `inverse` gives m_j p_j / (1 − ratio), whose mean only needs the mean of each m_j.

    Logits (…, S) are scaled, with any mask applied. Masks (n, S) are boolean, True for a kept key, and so is `allowed`,
    broadcastable to the logits, for keys that may be attended to. Result: (…, S), NaN in rows whose logits contain NaN.
    """
    weights = masked_softmax(logits)
    if rescale == "inverse":
        return weights * (keep_masks.to(weights.dtype).mean(dim=0) / (1.0 - ratio))
    seqlen_k = logits.shape[-1]
    allowed = torch.ones_like(keep_masks[:1]) if allowed is None else allowed
    flat_allowed = allowed.expand(logits.shape).reshape(-1, seqlen_k)
    flat_weights, flat_logits = weights.reshape(-1, seqlen_k), logits.reshape(-1, seqlen_k)
    averaged = torch.empty_like(flat_weights)
    pairs = BLOCK_PAIRS.get(weights.device.type, BLOCK_PAIRS["cpu"])
    step = min(len(keep_masks), MASKS_PER_BLOCK)
    for start in range(0, len(flat_weights), max(1, pairs // step)):
        rows = slice(start, start + max(1, pairs // step))
        averaged[rows] = _renormalized(
            flat_weights[rows], flat_logits[rows], flat_allowed[rows], keep_masks, step, max(1, pairs // seqlen_k)
        )
    return averaged.view_as(logits)


def _renormalized(
    weights: Tensor, logits: Tensor, allowed: Tensor, keep_masks: Tensor, step: int, max_pairs: int
) -> Tensor:
    """Return `average_weights` of rows (R, S), for `step` masks at a time; recompute at most `max_pairs` at a time."""
    # Rows without an allowed key keep their weights, as in training.
    has_allowed = allowed.any(dim=-1, keepdim=True)
    coefficients, recomputed = torch.zeros_like(weights), torch.zeros_like(weights)
    for start in range(0, len(keep_masks), step):
        keep_block = keep_masks[start : start + step]
        keep = keep_block.to(weights.dtype)
        kept_weight = weights @ keep.T
        inaccurate = kept_weight < MIN_KEPT_WEIGHT
        coefficients += kept_weight.reciprocal().masked_fill_(inaccurate, 0.0) @ keep
        pairs = inaccurate & has_allowed
        if not pairs.any():
            continue
        for row, mask in zip(*(index.split(max_pairs) for index in pairs.nonzero(as_tuple=True)), strict=True):
            keep_mask = allowed[row] & keep_block[mask]
            softmax = masked_softmax(logits[row].masked_fill(~keep_mask, float("-inf")))
            exact = torch.where(keep_mask.any(dim=-1, keepdim=True), softmax, weights[row])
            recomputed.index_add_(0, row, exact)
    return torch.where(has_allowed, (weights * coefficients + recomputed) / len(keep_masks), weights)
