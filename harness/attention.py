"""`attend`: the one attention call that every regularised model makes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.feedforward import regularized_heads
from harness.site import Site

UNSEEN = 80.0
"""A key that an additive mask puts further than this below the best of its row counts as forbidden: its weight is
below e^-80 = 2e-35 of the best one's, which no attention can tell from 0. Libraries forbid with -inf, with the
dtype's least number, with -1e9, -1e4 or (Swin) -100."""

VECTOR = 16
"""Without a mask, torch's kernel for CPUs (seen in 2.13) gives 0 for a row of NaN that is shorter than a vector. With a
mask of 0 it does not, and is the same bit for bit otherwise."""


_INFINITE = {
    torch.float16: (torch.int16, -(2**10)),
    torch.bfloat16: (torch.int16, -(2**7)),
    torch.float32: (torch.int32, -(2**23)),
    torch.float64: (torch.int64, -(2**52)),
}
"""The bits of -inf as a whole number: the sign and the exponent are all ones."""


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
    `scaled_dot_product_attention`, so that the model equals the unpatched one; `Site.hidden` and `Site.draws` change
    that. What the site's module does to the output, where it has one, comes on top in both.

    A NaN in q, k, v or an additive mask is never hidden: it reaches every output that SDPA would let it reach. A row
    that may attend to no key gives 0, with finite gradients, in training as in evaluation.

    Args:
        q: queries (B, H, T, d). Always 4 axes: fold others into the batch, add missing ones with `unsqueeze`.
        k: keys (B, H, S, d); where several query heads share a key head, repeated for each.
        v: values (B, H, S, e).
        site: the place in the model; it holds the regularizer and its ratio.
        training: whether to regularise.
        mask: broadcastable to (B, H, T, S): boolean, True where a query may attend; or floating, added to the logits,
            through which gradients flow.
        causal: query i attends to keys 0 … i only, beside `mask`. Where T ≠ S the first query still faces the first
            key, as in SDPA; a decoder with cached keys wants a mask instead.
        scale: factor of the logits; default d^-1/2.

    Returns:
        (B, H, T, e).

    Raises:
        ValueError: q, k or v without 4 axes, or a mask that is neither boolean nor floating.
    """
    if not q.dim() == k.dim() == v.dim() == 4:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (q, k, v))
        raise ValueError(
            f"attention '{site.name}': expected q, k, v of shape (batch, heads, tokens, size), got {shapes}"
        )
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"attention '{site.name}': expected a boolean or floating mask, got {mask.dtype}")
    if site.hidden is not None and not training:
        mask = _without(mask, site.hidden)
    if site.draws and not training and site.regularizer is not None and site.ratio > 0.0:
        from harness.expectation import expected_weights  # which knows regularizers, and they this module

        joined = with_causal(mask, q.shape[-2], k.shape[-2], q.device) if causal else mask
        weights = expected_weights(q, k, site, mask=joined, scale=scale)
        if site.probe is not None:
            site.probe(site, _observed(weights, joined))
        return weights.to(v.dtype) @ v
    if site.probe is not None:
        with torch.no_grad():
            joined = with_causal(mask, q.shape[-2], k.shape[-2], q.device) if causal else mask
            site.probe(site, _observed(attention_weights(q, k, mask=joined, scale=scale), joined))
    if training and site.regularizer is not None and site.ratio > 0.0:
        fast = site.regularizer.attend_fast(q, k, v, site, mask=mask, causal=causal, scale=scale)
        if fast is None:
            joined = with_causal(mask, q.shape[-2], k.shape[-2], q.device) if causal else mask
            fast = site.regularizer.attend(q, k, v, site, mask=joined, scale=scale)
        out = fast
    else:
        out = plain_attention(q, k, v, mask=mask, causal=causal, scale=scale)
    if site.module is not None:
        out = regularized_heads(out, site, training=training, keys=k.shape[-2], mask=mask, causal=causal)
    return out


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """SDPA, with a mask beside causality if need be, and with every NaN; arguments as those of `attend`."""
    if mask is None and q.device.type == "cpu" and k.shape[-2] < VECTOR:
        mask = q.new_zeros(1, k.shape[-2])
    if causal and mask is not None:
        mask, causal = with_causal(mask, q.shape[-2], k.shape[-2], q.device), False
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)


def with_causal(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> Tensor:
    """`mask` joined with the causal one (T, S), aligned at the first query and key; the mask keeps its dtype."""
    lower = torch.ones(queries, keys, dtype=torch.bool, device=device).tril()
    if mask is None:
        return lower
    return mask & lower if mask.dtype == torch.bool else mask.masked_fill(~lower, float("-inf"))


def _observed(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Attention weights as probes get them, at least in float32: 0 where the mask forbids, and nowhere else.

    A weight that is 0 by underflow becomes the least normal number.
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    weights = weights.clamp_min(torch.finfo(weights.dtype).tiny)
    return weights if mask is None else weights * allowed_keys(mask)


def _without(mask: Tensor | None, hidden: Tensor) -> Tensor:
    """`mask` joined with keys that are hidden from every query, (B or 1, S), True where hidden."""
    hidden = hidden[:, None, None, :]
    if mask is None:
        return ~hidden
    return mask & ~hidden if mask.dtype == torch.bool else mask.masked_fill(hidden, float("-inf"))


def allowed_keys(mask: Tensor) -> Tensor:
    """Which keys a mask lets be attended to: boolean, of the mask's shape. See `UNSEEN` for additive masks."""
    if mask.dtype == torch.bool:
        return mask
    mask = mask.detach()
    best = mask.amax(dim=-1, keepdim=True)
    # The second condition tells a row of nothing but the dtype's least number, whose best is that too.
    return (mask > best - UNSEEN) & (mask > torch.finfo(mask.dtype).min / 2)


def additive(kept: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask to add to logits: 0 where `kept`, -inf elsewhere."""
    # 1 or 0 times the bits of -inf: the same as `where`, in a tenth of its time on a CPU.
    integer, infinite = _INFINITE[dtype]
    return (~kept).view(torch.uint8).to(integer).mul_(infinite).view(dtype)


def attention_logits(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """q kᵀ · scale with the mask in, as (B, H, T, S)."""
    if causal:
        mask = with_causal(mask, q.shape[-2], k.shape[-2], q.device)
    logits = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-2, -1)
    if mask is None:
        return logits
    # Added, never filled in: filling would hide a NaN.
    return logits + (additive(mask, logits.dtype) if mask.dtype == torch.bool else mask)


def attention_weights(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """The unregularised attention weights (B, H, T, S); a row with no key to attend to is all 0, as in SDPA."""
    logits = attention_logits(q, k, mask=mask, causal=causal, scale=scale)
    return logits.softmax(dim=-1) if mask is None else masked_softmax(logits)


def masked_softmax(logits: Tensor) -> Tensor:
    """Softmax over the last axis; a row of -inf alone gives 0, in value and in gradient. NaN stays NaN."""
    empty = logits.detach().amax(dim=-1, keepdim=True) == float("-inf")
    return logits.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
