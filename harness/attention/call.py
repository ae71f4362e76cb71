"""`Call`: queries, keys, values, mask, causality, scale and dropout of one call of attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Call:
    """One call of attention, (B, H, T, d) × (B, H, S, d) × (B, H, S, e) → (B, H, T, e).

    Attributes:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        v: values (B, H, S, e).
        mask: boolean (True: may attend) or additive, broadcastable to (B, H, T, S); None: none.
        causal: query i attends to keys 0 … i only, in addition to `mask`.
        scale: factor of the logits; None: d^-1/2.
        dropout: rate of the model's own dropout of the weights, where no regularizer replaces it.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    causal: bool = False
    scale: float | None = None
    dropout: float = 0.0

    def with_merged_mask(self) -> Call:
        """Return the call with causality as part of its mask."""
        from dropbench.harness.attention.reference.sdpa import with_causal  # which needs torch

        if not self.causal:
            return self
        merged = with_causal(self.mask, self.q.shape[-2], self.k.shape[-2], self.q.device)
        return replace(self, mask=merged, causal=False)


def plain(call: Call) -> Tensor:
    """Return attention without regularization, but with the dropout of the call."""
    from dropbench.harness.attention.reference.sdpa import plain_attention  # which needs torch

    mask, causal, scale = call.mask, call.causal, call.scale
    return plain_attention(call.q, call.k, call.v, mask=mask, causal=causal, scale=scale, dropout=call.dropout)
