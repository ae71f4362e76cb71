"""Dropping attention: one space of unit × window × rescale, of which the published methods are named points."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from harness.regularizers.base import Regularizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from harness.masks import Draw
    from harness.site import Site

Unit = Literal["element", "column", "block", "cross"]
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
        from harness.dropping import attend_kept  # which needs torch

        kept = ~self.dropped((*q.shape[:-1], k.shape[-2]), site, q.device)
        return attend_kept(q, k, v, kept, self.rescale, site.ratio, mask=mask, scale=scale)


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

    def attend_fast(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, causal: bool, scale: float | None
    ) -> Tensor | None:
        """The same without a mask of T × S, where nothing of it is overridden; see `harness.backends`."""
        if type(self).dropped is not UnitDrop.dropped or type(self).attend is not UnitDrop.attend:
            return None
        from harness.drop_attention import drop_attention  # which needs torch

        draw = self._draw(k.shape[-2], site)
        return drop_attention(q, k, v, draw, self.rescale, site.ratio, mask=mask, causal=causal, scale=scale)

    def _covers(self, high: int, wide: int) -> bool:
        """Whether one window is the whole grid, so that a row would lose all its keys or none: no regularisation."""
        side = min(self.window, high, wide)
        return side == high == wide if self.unit == "block" else side in (high, wide)

    def dropped(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        """Draw units; see `harness.masks.dropped_keys`."""
        from harness.masks import drawn_keys  # which needs torch

        return drawn_keys(self._draw(shape[-1], site), shape, device)

    def _draw(self, keys: int, site: Site) -> Draw:
        from harness.masks import new_draw  # which needs torch

        return new_draw(self.unit, site.ratio, self.window, keys, grid=site.grid, prefix=site.prefix, stream=site.layer)
