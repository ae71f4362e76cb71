"""`attend`: the one attention call that every regularised model makes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.site import Site


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    site: Site,
    *,
    training: bool,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention, regularised in training as the site says.

    In evaluation, or where the site has no regularizer or ratio 0, this is plain
    `scaled_dot_product_attention`, so that the model equals the unpatched one.

    Args:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        v: values (B, H, S, e).
        site: the place in the model; it holds the regularizer and its ratio.
        training: whether to regularise.
        mask: broadcastable to (B, H, T, S): boolean, True where a query may attend; or floating, added to the logits.
        causal: a query attends only to keys up to its own position, beside `mask`.
        scale: factor of the logits; default d^-1/2.

    Returns:
        (B, H, T, e).
    """
    if site.probe is not None:
        site.probe(site, attention_weights(q, k, mask=mask, causal=causal, scale=scale).detach())
    if not training or site.regularizer is None or site.ratio == 0.0:
        if causal and mask is not None:
            mask, causal = with_causal(mask, q.shape[-2], k.shape[-2], q.device), False
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    if causal:
        mask = with_causal(mask, q.shape[-2], k.shape[-2], q.device)
    return site.regularizer.attend(q, k, v, site, mask=mask, scale=scale)


def with_causal(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> Tensor:
    """`mask` joined with the causal one (T, S); the mask keeps its dtype."""
    lower = torch.ones(queries, keys, dtype=torch.bool, device=device).tril()
    if mask is None:
        return lower
    return mask & lower if mask.dtype == torch.bool else mask.masked_fill(~lower, float("-inf"))


def attention_logits(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """q kᵀ · scale with the mask in, as (B, H, T, S)."""
    if causal:
        mask = with_causal(mask, q.shape[-2], k.shape[-2], q.device)
    logits = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-2, -1)
    if mask is None:
        return logits
    return logits.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else logits + mask


def attention_weights(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """The unregularised attention weights (B, H, T, S); a row with no key to attend to is all 0, as in SDPA."""
    logits = attention_logits(q, k, mask=mask, causal=causal, scale=scale)
    return masked_softmax(logits)


def masked_softmax(logits: Tensor) -> Tensor:
    """Softmax over the last axis; a row of -inf alone gives 0, in value and in gradient. NaN stays NaN."""
    empty = (logits == float("-inf")).all(dim=-1, keepdim=True)
    return logits.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
