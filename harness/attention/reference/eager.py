"""Attention with dropped keys in torch operations: the reference computation of `harness.regularizers.drop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dropbench.harness.attention.reference.sdpa import (
    additive,
    allowed_keys,
    attention_logits,
    attention_weights,
    autocast,
    mask_logits,
    masked_softmax,
    plain_attention,
    sdpa,
    without_autocast,
)

if TYPE_CHECKING:
    from dropbench.harness.attention.reference.units import Rescale


def drop_attention(
    q: Tensor, k: Tensor, v: Tensor, keep_mask: Tensor, rescale: Rescale, ratio: float, *, mask: Tensor | None,
    scale: float | None,
) -> Tensor:  # fmt: skip
    """Return attention to the kept keys; `harness.regularizers.drop.AttentionDrop` documents the rescaling modes.

    Arguments and result are those of `dropbench.harness.attention.dispatch.drop_attention`, except `keep_mask`:
    boolean, broadcastable to (B, H, T, S), and (B, H, 1, S) if all queries keep the same keys.
    """
    if rescale == "renormalize":
        return sdpa(q, k, v, mask=merge_keep_mask(keep_mask, mask, q.dtype), scale=scale)
    if rescale == "detached":
        keep_mask = keep_all_if_empty(keep_mask, keep_mask if mask is None else keep_mask & allowed_keys(mask))
    # Multiply by 0 instead of filling with 0: filling would hide a NaN.
    elif keep_mask.dim() == 4 and keep_mask.shape[-2] == 1:
        # Keys dropped for every query are dropped values (DropAttention, Section 4, "(c)").
        v = v * keep_mask.transpose(-2, -1).to(v.dtype)
        return plain_attention(q, k, v, mask=mask, scale=scale) / (1.0 - ratio)
    q, k, v = autocast(q, k, v)
    dtype = torch.promote_types(q.dtype, torch.float32)  # as in fused kernels, only the output is rounded to half
    with without_autocast(q.device.type):
        if rescale == "detached":
            out = _detached_weights(attention_logits(q.to(dtype), k.to(dtype), mask=mask, scale=scale), keep_mask)
            return (out @ v.to(dtype)).to(q.dtype)
        weights = attention_weights(q.to(dtype), k.to(dtype), mask=mask, scale=scale)
        out = (weights * keep_mask.to(weights.dtype)) @ v.to(dtype) / (1.0 - ratio)
    return out.to(q.dtype)


def drop_weights(logits: Tensor, keep_mask: Tensor, rescale: Rescale, ratio: float, *, mask: Tensor | None) -> Tensor:
    """Return the weights (B, H, T, S) with which `drop_attention` attends, for logits of at least float32."""
    if rescale == "renormalize":
        return masked_softmax(mask_logits(logits, merge_keep_mask(keep_mask, mask, logits.dtype)))
    logits = mask_logits(logits, mask)
    if rescale == "detached":
        keep_mask = keep_all_if_empty(keep_mask, keep_mask if mask is None else keep_mask & allowed_keys(mask))
        return _detached_weights(logits, keep_mask)
    return masked_softmax(logits) * keep_mask.to(logits.dtype) / (1.0 - ratio)


def zero_top_attention(
    q: Tensor, k: Tensor, v: Tensor, keep_mask: Tensor, top: int, *, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Return attention with the dropped of the `top` largest logits of each row set to 0; see `zero_top`."""
    q, k, v = autocast(q, k, v)
    dtype = torch.promote_types(q.dtype, torch.float32)
    with without_autocast(q.device.type):
        logits = attention_logits(q.to(dtype), k.to(dtype), mask=mask, scale=scale)
        allowed = None if mask is None else allowed_keys(mask)
        out = masked_softmax(zero_top(logits, keep_mask, top, allowed)) @ v.to(dtype)
    return out.to(q.dtype)


def zero_top(logits: Tensor, keep_mask: Tensor, top: int, allowed: Tensor | None) -> Tensor:
    """Return logits (B, H, T, S), 0 where a key is not kept and its logit is among the largest of its row.

    The largest are the `top` largest of the keys that are `allowed`, boolean and broadcastable; None: all.
    """
    allowed = torch.ones_like(keep_mask) if allowed is None else allowed.expand(logits.shape)
    ranked = logits.detach().masked_fill(~allowed, float("-inf"))
    largest = ranked.topk(min(top, logits.shape[-1]), dim=-1).indices
    among = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device).scatter(-1, largest, True)
    # Multiply by 0 instead of filling with 0: filling would hide a NaN.
    return logits * (keep_mask | ~(among & allowed))


def _detached_weights(logits: Tensor, keep_mask: Tensor) -> Tensor:
    """Return the weights of the kept keys divided by their sum, through which no gradient flows; mask applied.

    The values are those of the softmax over the kept keys, which does not underflow; the gradients are those of the
    softmax over all keys: each weight changes by its relative change there.
    """
    values = masked_softmax(logits.detach() + additive(keep_mask, logits.dtype))
    empty = logits.detach().amax(dim=-1, keepdim=True) == float("-inf")
    log_weights = logits.masked_fill(empty, 0.0).log_softmax(dim=-1)
    change = (log_weights - log_weights.detach()).masked_fill(values == 0.0, 0.0)
    return values * (1.0 + change)


def merge_keep_mask(keep_mask: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Merge the keep mask into `mask`; rows whose allowed keys are all dropped keep all of them.

    Returns:
        additive, −inf at dropped keys, broadcastable to (B, H, T, S).
    """
    if mask is None:
        return additive(keep_all_if_empty(keep_mask, keep_mask), dtype)
    keep_mask = keep_all_if_empty(keep_mask, keep_mask & allowed_keys(mask))
    if mask.dtype == torch.bool:
        return additive(keep_mask & mask, dtype)
    return mask + additive(keep_mask, mask.dtype)


def keep_all_if_empty(keep_mask: Tensor, remaining: Tensor) -> Tensor:
    """Return `keep_mask` with all keys kept in rows where `remaining` is empty."""
    if torch.compiler.is_compiling():
        return keep_mask | ~remaining.any(dim=-1, keepdim=True)  # torch 2.13 compiles the code below to invalid C++
    # uint8 operations are many times faster than boolean ones on CPU.
    fully_dropped = remaining.view(torch.uint8).amax(dim=-1, keepdim=True) == 0
    return keep_mask.view(torch.uint8).bitwise_or(fully_dropped.view(torch.uint8)).view(torch.bool)
