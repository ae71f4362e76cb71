"""Dropping attention: one space of unit × window × rescale, of which the published methods are named points."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import additive, allowed_keys, attention_weights, plain_attention
from harness.masks import Unit, dropped_keys
from harness.regularizers.base import Regularizer

if TYPE_CHECKING:
    from harness.site import Site

Rescale = Literal["renormalize", "inverse"]


class AttentionDrop(Regularizer):
    """Drops attention to keys. A subclass writes `dropped`, which draws the keys that go, and inherits the rest.

    `renormalize` runs the softmax over the kept keys (DropKey, Eq. 12 to 14), which is the same function as dropping
    weights after the softmax and dividing each row by its sum (DropKey, Eq. 1; DropAttention, Section 4.2). A row
    that would lose every key that it may attend to keeps its unregularised weights.

    `inverse` drops weights after the softmax and divides by 1 − ratio (Dropout; DropAttention's "traditional"
    rescaling); a row that loses every key is 0, as in Dropout.
    """

    rescale: Rescale = Field(default="renormalize", description="how a row is rescaled")

    @abstractmethod
    def dropped(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        """Draw the dropped keys of a batch.

        Args:
            shape: (B, H, T, S).
            site: the place in the model, with its `ratio`, grid and prefix.
            device: where to make the mask.

        Returns:
            boolean, True where dropped, broadcastable to `shape`. Keys that are the same for all queries are best left
            as (B, H, 1, S): that costs next to nothing.
        """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Attention with the keys that this draw leaves; shapes as in `Regularizer.attend`."""
        kept = ~self.dropped((*q.shape[:-1], k.shape[-2]), site, q.device)
        if self.rescale == "renormalize":
            return scaled_dot_product_attention(q, k, v, attn_mask=_kept_mask(kept, mask, q.dtype), scale=scale)
        # Multiplied, never filled in: filling would hide a NaN.
        if kept.dim() == 4 and kept.shape[-2] == 1:
            # Keys that are dropped for every query are dropped values (DropAttention, Section 4, "(c)").
            v = v * kept.transpose(-2, -1).to(v.dtype)
            return plain_attention(q, k, v, mask=mask, scale=scale) / (1.0 - site.ratio)
        weights = attention_weights(q, k, mask=mask, scale=scale)
        return (weights * kept.to(weights.dtype)) @ v / (1.0 - site.ratio)


class UnitDrop(AttentionDrop):
    """Drops units of keys: single elements, columns, windows of them, blocks or crosses of a key grid."""

    unit: Unit = Field(default="element", description="what is dropped at once")
    window: int = Field(default=1, ge=1, description="window size in keys (block, cross: side in patches)")

    def skip(self, site: Site) -> str | None:
        """Block and cross need a grid of keys, and one that a single window does not cover."""
        if self.unit in ("block", "cross"):
            if site.grid is None:
                return f"unit '{self.unit}' needs keys that form a grid"
            if self.rescale == "renormalize" and not site.prefix and self._covers(*site.grid):
                return f"one {self.unit} of size {self.window} covers all {site.grid[0]}×{site.grid[1]} keys"
        return super().skip(site)

    def _covers(self, high: int, wide: int) -> bool:
        """Whether one window is the whole grid, so that a row would lose all its keys or none: no regularisation."""
        side = min(self.window, high, wide)
        return side == high == wide if self.unit == "block" else side in (high, wide)

    def dropped(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        """Draw units; see `dropped_keys`."""
        return dropped_keys(
            self.unit, site.ratio, self.window, shape, grid=site.grid, prefix=site.prefix, device=device
        )


def _kept_mask(kept: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
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
    # On bytes, at which a CPU is many times as fast as at booleans.
    none = left.view(torch.uint8).amax(dim=-1, keepdim=True) == 0
    return kept.view(torch.uint8).bitwise_or(none.view(torch.uint8)).view(torch.bool)
