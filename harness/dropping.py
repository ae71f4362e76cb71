"""Attention to the keys that a draw leaves: what `harness.regularizers.drop` computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import additive, allowed_keys, attention_weights, plain_attention

if TYPE_CHECKING:
    from harness.regularizers.drop import Rescale


def attend_kept(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kept: Tensor,
    rescale: Rescale,
    ratio: float,
    *,
    mask: Tensor | None,
    scale: float | None,
) -> Tensor:
    """Attention to the keys that are kept; see `harness.regularizers.drop.AttentionDrop` for the ways to rescale.

    Args:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        v: values (B, H, S, e).
        kept: boolean, broadcastable to (B, H, T, S); keys that are the same for all queries as (B, H, 1, S).
        rescale: how a row is rescaled.
        ratio: drop ratio, which `inverse` divides by.
        mask: boolean (True: may attend) or additive, broadcastable to (B, H, T, S).
        scale: factor of the logits; None: d^-1/2.

    Returns:
        (B, H, T, e).
    """
    if rescale == "renormalize":
        return scaled_dot_product_attention(q, k, v, attn_mask=kept_mask(kept, mask, q.dtype), scale=scale)
    # Multiplied, never filled in: filling would hide a NaN.
    if kept.dim() == 4 and kept.shape[-2] == 1:
        # Keys that are dropped for every query are dropped values (DropAttention, Section 4, "(c)").
        v = v * kept.transpose(-2, -1).to(v.dtype)
        return plain_attention(q, k, v, mask=mask, scale=scale) / (1.0 - ratio)
    weights = attention_weights(q, k, mask=mask, scale=scale)
    return (weights * kept.to(weights.dtype)) @ v / (1.0 - ratio)


def kept_mask(kept: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Join the kept keys with `mask`; a row that would lose every key that it may attend to keeps them all.

    Returns:
        additive, with −inf at dropped keys, broadcastable to (B, H, T, S).
    """
    if mask is None:
        return additive(_or_all(kept, kept), dtype)
    kept = _or_all(kept, kept & allowed_keys(mask))
    return additive(kept & mask, dtype) if mask.dtype == torch.bool else mask + additive(kept, mask.dtype)


def _or_all(kept: Tensor, left: Tensor) -> Tensor:
    """`kept`, but every key of a row that has none left."""
    if torch.compiler.is_compiling():
        return kept | ~left.any(dim=-1, keepdim=True)  # of the below torch 2.13 makes code that C++ refuses
    # On bytes, at which a CPU is many times as fast as at booleans.
    none = left.view(torch.uint8).amax(dim=-1, keepdim=True) == 0
    return kept.view(torch.uint8).bitwise_or(none.view(torch.uint8)).view(torch.bool)
