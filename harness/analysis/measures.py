"""Measures of attention weights from the sources, as functions of tensors.

The weights A have shape (B, H, T, S): H heads, T queries, S keys. As a `Probe` gets them, a weight is 0 only if the
query may not attend to the key. Measures of low-precision weights are computed in float32. NaN propagates.
"""

from __future__ import annotations

import torch
from torch import Tensor

SELF_ATTENTION = ("encoder-self", "decoder-self")


def entropy(weights: Tensor) -> Tensor:
    """Return E = −Σ_j p_j log p_j in nats per head and query, (B, H, T) (DropKey 4.1.1; DropAttention, Eq. 13)."""
    terms: Tensor = torch.special.entr(_at_least_float32(weights))
    return terms.sum(dim=-1)


def diversity(weights: Tensor) -> Tensor:
    """Return Div = ‖A Aᵀ − I‖²_F per query, (B, T) (DropAttention, Eq. 11; row i of A is head i). Large: overlap."""
    heads = _at_least_float32(weights).transpose(1, 2)  # (B, T, H, S)
    gram = heads @ heads.transpose(-2, -1)
    identity = torch.eye(heads.shape[-2], dtype=heads.dtype, device=heads.device)
    return (gram - identity).square().sum(dim=(-2, -1))


def disagreement(weights: Tensor) -> Tensor:
    """Return the mean cosine over all pairs of heads per query, (B, T) (DropAttention, Eq. 12).

    Each head is also paired with itself. Large: heads are similar. NaN if a query attends to nothing.
    """
    heads = _at_least_float32(weights).transpose(1, 2)  # (B, T, H, S)
    heads = heads / heads.square().sum(dim=-1, keepdim=True).sqrt()
    # Σ_ij cos(i, j) equals the squared norm of the sum of the unit vectors.
    return heads.sum(dim=-2).square().sum(dim=-1) / heads.shape[-2] ** 2


def largest(weights: Tensor, lengths: Tensor) -> Tensor:
    """Return largest weight × sentence length per head and query, (B, H, T) (DropAttention 6.3). Uniform rows give 1.

    `lengths` (B, T) are the numbers of real keys of each query.
    """
    return _at_least_float32(weights).amax(dim=-1) * lengths[:, None]


def real_keys(weights: Tensor) -> Tensor:
    """Return the mask of real keys, (B, S). A key that no query may attend to is padding."""
    return (weights != 0).any(dim=2).any(dim=1)


def real_queries(weights: Tensor, kind: str) -> Tensor:
    """Return the mask of queries that are not padding, (B, T).

    In self-attention, a query is real if its key is; otherwise, if it may attend to any key.
    """
    if kind in SELF_ATTENTION and weights.shape[2] == weights.shape[3]:
        return real_keys(weights)
    return (weights != 0).any(dim=3).any(dim=1)


def lengths(weights: Tensor, kind: str) -> Tensor:
    """Return the number of real keys per query, (B, T); in a decoder's self-attention, up to the query's position."""
    keys = real_keys(weights)
    if kind == "decoder-self" and weights.shape[2] == weights.shape[3]:
        return keys.cumsum(dim=1)
    return keys.sum(dim=1, keepdim=True).expand(-1, weights.shape[2])


def _at_least_float32(weights: Tensor) -> Tensor:
    return weights.to(torch.promote_types(weights.dtype, torch.float32))
