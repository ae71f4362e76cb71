"""Drop attention: one space of unit × window × rescale; the published methods are points of it (`presets`)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import RATIO, Regularizer, Site

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dropbench.harness.attention.call import Call
    from dropbench.harness.attention.reference.drop_masks import DropSpec
    from dropbench.harness.regularizers.around import Attention


class AttentionDrop(Regularizer):
    """Drops attention to keys. A subclass implements `sample_drop_mask` and inherits the rest.

    `renormalize` runs the softmax over the kept keys (DropKey, Eq. 12 to 14), which is the same function as dropping
    weights after the softmax and dividing each row by its sum (DropKey, Eq. 1; DropAttention, Section 4.2). A row
    that would lose every key that it may attend to keeps its unregularized weights.

    `inverse` drops weights after the softmax and divides by 1 − ratio (Dropout; DropAttention's "traditional"
    rescaling); a row that loses every key is 0, as in Dropout.

    `detached` divides by the sum of the row, as `renormalize` does, but as by a constant, through which no gradient
    flows (DropAttention as we understand summaries of Wang et al. 2024, "LoRA Meets Dropout").
    """

    ratio: float = RATIO
    rescale: Rescale = Field(default="renormalize", description="how a row is rescaled")

    @model_validator(mode="after")
    def _require_drop_ratio(self) -> Self:
        if self.ratio >= 1:
            raise ValueError(f"ratio={self.ratio}: expected a drop ratio below 1")
        return self

    @abstractmethod
    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        """Sample the dropped keys of a batch.

        Args:
            shape: (B, H, T, S).
            site: the site, with its `ratio`, grid and number of prefix tokens.
            device: the device of the mask.

        Returns:
            boolean, True for dropped keys, broadcastable to `shape`. If all queries lose the same keys, return
            (B, H, 1, S), which costs almost nothing.
        """

    def _checked_drop_mask(self, call: Call, site: Site) -> Tensor:
        drop_mask = self.sample_drop_mask((*call.q.shape[:-1], call.k.shape[-2]), site, call.q.device)
        dtype = getattr(drop_mask, "dtype", type(drop_mask).__name__)
        if str(dtype) != "torch.bool":  # ~ of a whole number is not its negation
            raise InputError(f"{type(self).__name__}.sample_drop_mask: expected a boolean drop mask, got {dtype}")
        return drop_mask

    def attend(self, call: Call, site: Site) -> Tensor:
        from dropbench.harness.attention.reference import eager  # which needs torch

        keep_mask = ~self._checked_drop_mask(call, site)
        return eager.drop_attention(
            call.q, call.k, call.v, keep_mask, self.rescale, site.ratio, mask=call.mask, scale=call.scale
        )

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Attend by `inner` to the keys that one sampled mask keeps: `renormalize`, as a part of a composition."""
        from dropbench.harness.attention.reference.eager import merge_keep_mask  # which needs torch

        keep_mask, call = ~self._checked_drop_mask(call, site), call.with_merged_mask()
        return inner(replace(call, mask=merge_keep_mask(keep_mask, call.mask, call.q.dtype)))


class UnitDrop(AttentionDrop):
    """Drops units of keys: single elements, columns, windows of them, blocks or crosses of a key grid."""

    unit: Unit = Field(default="element", description="what is dropped at once")
    window: int = Field(default=1, ge=1, description="window size in keys (block, cross: side in patches)")

    @property
    def is_per_query(self) -> bool:  # type: ignore[override]
        """True, unless a subclass changes what is dropped."""
        return self._is_unchanged() and type(self).attend_fused is UnitDrop.attend_fused

    def skip(self, site: Site) -> str | None:
        """Return why the unit does not fit: block and cross need a grid of keys that a single window does not cover."""
        if self.unit in ("block", "cross"):
            if site.grid is None:
                return f"unit '{self.unit}' needs keys that form a grid"
            if self.rescale != "inverse" and not site.num_prefix_tokens and self._covers(*site.grid):
                return f"one {self.unit} of size {self.window} covers all {site.grid[0]}×{site.grid[1]} keys"
        return super().skip(site)

    def attend_fused(self, call: Call, site: Site) -> Tensor | None:
        """Compute `attend` without a T × S mask, unless a subclass overrides it; see `harness.attention.backends`."""
        if not self._is_unchanged():
            return None
        from dropbench.harness.attention.dispatch import drop_attention  # which needs torch

        return drop_attention(call, self._sample_spec(call.k.shape[-2], site), self.rescale, site.ratio)

    def weights(self, logits: Tensor, mask: Tensor, site: Site) -> Tensor | None:
        """Compute `Regularizer.weights` by the softmax alone, unless a subclass changes what is dropped."""
        if not self._is_unchanged() or type(self).attend_fused is not UnitDrop.attend_fused:
            return None
        from dropbench.harness.attention.reference.eager import drop_weights  # which needs torch

        batch, heads, rows, keys = logits.shape
        keep_mask = ~self.sample_drop_mask((batch, heads, rows, keys), site, logits.device)
        return drop_weights(logits, keep_mask, self.rescale, site.ratio, mask=mask)

    def expected_weights(self, call: Call, site: Site) -> Tensor:
        """Compute `Regularizer.expected_weights` by two matrix products for all rows and samples.

        The masks of one call are the same for all examples, heads and queries. The expectation of a row depends only on
        the distribution of its own mask, which is the same in every row, so sharing masks changes no expectation; only
        the errors of different rows become correlated.
        """
        if not self._is_unchanged() or type(self).attend_fused is not UnitDrop.attend_fused:
            return super().expected_weights(call, site)
        from dropbench.harness.attention.reference.expectation import average_weights  # which needs torch
        from dropbench.harness.attention.reference.sdpa import allowed_keys, attention_logits

        logits = attention_logits(call.q, call.k, mask=call.mask, scale=call.scale)
        allowed = None if call.mask is None else allowed_keys(call.mask)
        shape = site.mc_samples, 1, 1, call.k.shape[-2]
        keep_masks = ~self.sample_drop_mask(shape, site, call.q.device).flatten(0, 2)
        return average_weights(logits, keep_masks, rescale=self.rescale, ratio=site.ratio, allowed=allowed)

    def _is_unchanged(self) -> bool:
        """Return whether no subclass overrides what is dropped and how the rest is attended to."""
        kind = type(self)
        return kind.sample_drop_mask is UnitDrop.sample_drop_mask and kind.attend is UnitDrop.attend

    def _covers(self, grid_h: int, grid_w: int) -> bool:
        """Return whether one window covers the grid, so that a row would lose all of its keys or none."""
        side = min(self.window, grid_h, grid_w)
        return side == grid_h == grid_w if self.unit == "block" else side in (grid_h, grid_w)

    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        """Sample units; see `dropbench.harness.attention.reference.drop_masks.sample_drop_mask`."""
        from dropbench.harness.attention.reference.drop_masks import drop_mask  # which needs torch

        return drop_mask(self._sample_spec(shape[-1], site), shape, device)

    def _sample_spec(self, seqlen_k: int, site: Site) -> DropSpec:
        from dropbench.harness.attention.reference.drop_masks import sample_spec  # which needs torch

        keys = seqlen_k, grid_of_keys(site, seqlen_k), site.num_prefix_tokens
        return sample_spec(self.unit, site.ratio, self.window, *keys, stream=site.layer)


def grid_of_keys(site: Site, keys: int) -> tuple[int, int] | None:
    """Return the grid of a number of keys: the site's, or a square for images of another size than the model's."""
    if site.grid is None or site.grid[0] * site.grid[1] + site.num_prefix_tokens == keys:
        return site.grid
    side = isqrt(max(keys - site.num_prefix_tokens, 0))
    return (side, side) if side * side + site.num_prefix_tokens == keys else site.grid
