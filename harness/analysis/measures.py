"""The sources' measures of attention weights: formulas on tensors, for any model.

Everywhere A is (B, H, T, S): weights of T queries on S keys by H heads, 0 where a query may not attend to a key and
nowhere else, as probes get them (`harness.site.Probe`). Low precision is computed in float32. NaN stays NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

SELF = ("encoder-self", "decoder-self")


def entropy(weights: Tensor) -> Tensor:
    """E = −Σ_j p_j log p_j in nats, by head and query: (B, H, T) (DropKey 4.1.1; DropAttention, Eq. 13)."""
    terms: Tensor = torch.special.entr(_precise(weights))
    return terms.sum(dim=-1)


def diversity(weights: Tensor) -> Tensor:
    """Div = ‖A Aᵀ − I‖²_F with a head a row of A, by query: (B, T) (DropAttention, Eq. 11). Large: heads overlap."""
    heads = _by_query(weights)
    products = heads @ heads.transpose(-2, -1)
    unit = torch.eye(heads.shape[-2], dtype=heads.dtype, device=heads.device)
    return (products - unit).square().sum(dim=(-2, -1))


def disagreement(weights: Tensor) -> Tensor:
    """The mean cosine over all pairs of heads, a head with itself too: (B, T) (DropAttention, Eq. 12).

    Large: heads are alike. A query that attends to nothing has no cosine: NaN.
    """
    heads = _by_query(weights)
    heads = heads / heads.square().sum(dim=-1, keepdim=True).sqrt()
    # Σ_ij cos(i, j) is the squared length of the sum of the unit vectors.
    return heads.sum(dim=-2).square().sum(dim=-1) / heads.shape[-2] ** 2


def largest(weights: Tensor, lengths: Tensor) -> Tensor:
    """The largest weight × the sentence length, by head and query: (B, H, T) (DropAttention 6.3). Even weights give 1.

    Args:
        weights: A.
        lengths: keys that there are for each query, (B, T).
    """
    return _precise(weights).amax(dim=-1) * lengths[:, None]


def real_keys(weights: Tensor) -> Tensor:
    """The keys that some query may attend to, (B, S): one that nobody may attend to is padding."""
    return (weights != 0).any(dim=2).any(dim=1)


def real_queries(weights: Tensor, kind: str) -> Tensor:
    """The queries that count, (B, T): of self-attention those whose key is real, else those that may attend at all."""
    if kind in SELF and weights.shape[2] == weights.shape[3]:
        return real_keys(weights)
    return (weights != 0).any(dim=3).any(dim=1)


def lengths(weights: Tensor, kind: str) -> Tensor:
    """How many real keys there are for each query, (B, T); of a decoder's self-attention those up to its own place."""
    keys = real_keys(weights)
    if kind == "decoder-self" and weights.shape[2] == weights.shape[3]:
        return keys.cumsum(dim=1)
    return keys.sum(dim=1, keepdim=True).expand(-1, weights.shape[2])


def _by_query(weights: Tensor) -> Tensor:
    """(B, H, T, S) → (B, T, H, S)."""
    return _precise(weights).transpose(1, 2)


def _precise(weights: Tensor) -> Tensor:
    return weights.to(torch.promote_types(weights.dtype, torch.float32))
