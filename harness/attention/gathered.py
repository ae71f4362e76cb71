"""Attention with dropped columns on a CPU: keys that no query may attend to are removed instead of masked.

If all queries of a head drop the same keys, attention to the remaining ones is shorter and costs less.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dropbench.harness.attention.reference.drop_masks import DropSpec, drop_mask
from dropbench.harness.attention.reference.eager import merge_keep_mask
from dropbench.harness.attention.reference.sdpa import sdpa

MIN_SEQLEN = 512
"""Queries and keys per head: below this, the fused kernel costs less than gathering."""
ALIGN = 16
"""The number of gathered keys is a multiple of this: torch's kernel works on full vectors."""


def should_gather(q: Tensor, k: Tensor, v: Tensor, spec: DropSpec, mask: Tensor | None, *, causal: bool) -> bool:
    """Return whether `gathered_attention` computes a call, and faster than the fused kernel.

    All queries of a head have to attend to the same keys, and keys and values to be finite: an infinity or NaN
    propagates through a weight of 0.
    """
    share_keys = spec.unit == "column" and not causal and (mask is None or mask.dim() < 2 or mask.shape[-2] == 1)
    is_long = min(q.shape[2], k.shape[2]) >= MIN_SEQLEN
    return share_keys and is_long and bool(k.isfinite().all() and v.isfinite().all())


def gathered_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: DropSpec, *, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Return attention (B, H, T, e) to the kept keys, renormalized.

    Arguments are those of `dropbench.harness.attention.dispatch.drop_attention`, with `mask` broadcastable to (B, H, 1,
    S).
    """
    batch, heads, seqlen_k, _ = k.shape
    keep_mask = ~drop_mask(spec, (batch, heads, 1, seqlen_k))
    additive_mask = merge_keep_mask(keep_mask, mask, q.dtype)
    is_removed = additive_mask.isneginf()
    max_kept = int((~is_removed).sum(dim=-1).max())
    count = min(-(-max(max_kept, 1) // ALIGN) * ALIGN, seqlen_k)
    order = is_removed.view(torch.uint8).argsort(dim=-1, stable=True)[..., :count]  # (B, H, 1, count), kept keys first
    samples, numbers = torch.arange(batch)[:, None, None], torch.arange(heads)[:, None]
    rows = ((samples * seqlen_k + order.squeeze(2)) * heads + numbers).flatten()
    k, v = _gather(k, rows), _gather(v, rows)
    return sdpa(q, k, v, mask=additive_mask.gather(-1, order), scale=scale)


def _gather(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return the rows (B · H · n) of a tensor (B, H, S, d) in the order of its memory in models, as (B, H, n, d)."""
    batch, heads, _, head_dim = tensor.shape
    flat = tensor.transpose(1, 2).reshape(-1, head_dim)
    return flat.index_select(0, rows).view(batch, heads, -1, head_dim)
