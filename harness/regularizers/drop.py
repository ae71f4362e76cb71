"""Dropping attention: one space of unit × window × rescale, of which the published methods are named points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import attention_logits, masked_softmax
from harness.masks import Unit, dropped_keys
from harness.regularizers.base import Regularizer

if TYPE_CHECKING:
    from harness.site import Site

Rescale = Literal["renormalize", "inverse"]


class AttentionDrop(Regularizer):
    """Drops attention to keys.

    `renormalize` runs the softmax over the kept keys (DropKey, Eq. 12 to 14), which is the same function as dropping
    weights after the softmax and dividing each row by its sum (DropAttention, Section 4.2). A row that would lose
    every key keeps its unregularised weights. `inverse` drops weights after the softmax and divides by 1 − ratio
    (Dropout; DropAttention's "traditional" rescaling); a row that loses every key is 0, as in Dropout.
    """

    unit: Unit = Field(default="element", description="what is dropped at once")
    window: int = Field(default=1, ge=1, description="window size in keys (block, cross: side in patches)")
    rescale: Rescale = Field(default="renormalize", description="how a row is rescaled")

    def skip(self, site: Site) -> str | None:
        """Block and cross need a grid of keys."""
        if self.unit in ("block", "cross") and site.grid is None:
            return f"unit '{self.unit}' needs keys that form a grid"
        return super().skip(site)

    def dropped(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        """Draw the dropped keys of a batch.

        Args:
            shape: (B, H, T, S).
            site: the place in the model, with its `ratio`, grid and prefix.
            device: where to make the mask.

        Returns:
            boolean, True where dropped, broadcastable to `shape`.
        """
        return dropped_keys(
            self.unit, site.ratio, self.window, shape, grid=site.grid, prefix=site.prefix, device=device
        )

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Attention with the keys that this draw leaves; shapes as in `Regularizer.attend`."""
        kept = ~self.dropped((*q.shape[:-1], k.shape[-2]), site, q.device)
        if self.rescale == "inverse":
            weights = masked_softmax(attention_logits(q, k, mask=mask, scale=scale))
            return (weights * (kept / (1.0 - site.ratio)).to(weights.dtype)) @ v
        return scaled_dot_product_attention(q, k, v, attn_mask=_kept_mask(kept, mask), scale=scale)


def _kept_mask(kept: Tensor, mask: Tensor | None) -> Tensor:
    """Join the kept keys with `mask`; a row that would lose every key that it may attend to keeps them all.

    Returns:
        of the mask's kind (boolean, or additive with −inf at dropped keys), broadcastable to (B, H, T, S).
    """
    if mask is None:
        return kept | ~kept.any(dim=-1, keepdim=True)
    # Libraries mask with -inf or with the dtype's least number: half of that tells both from a bias.
    allowed = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    kept = kept | ~(kept & allowed).any(dim=-1, keepdim=True)
    return kept & mask if mask.dtype == torch.bool else mask.masked_fill(~kept, float("-inf"))
