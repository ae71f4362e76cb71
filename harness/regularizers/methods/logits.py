"""Regularizers of attention logits, before the softmax."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator

from harness.regularizers.around import AroundAttention, Attention
from harness.regularizers.base import RATIO, Site, Stage

if TYPE_CHECKING:
    from torch import Tensor


class LogitNoise(AroundAttention):
    """Adds Gaussian noise to the logits: a_j + ε_j with ε_j ~ N(0, σ²), independent for every query and key."""

    stage: ClassVar[Stage] = "logits"
    strength: ClassVar[str] = "sigma"

    sigma: float = Field(default=0.1, ge=0.0, description="standard deviation of the noise, or its maximum")

    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Attend with noise in the mask; shapes as in `AroundAttention.around`."""
        import torch

        from harness.attention.reference.sdpa import mask_logits  # which needs torch

        noise = site.ratio * torch.randn(*q.shape[:-1], k.shape[-2], dtype=q.dtype, device=q.device)
        return inner(q, k, v, mask=mask_logits(noise, mask), causal=causal, scale=scale)


class Temperature(AroundAttention):
    """Divides the logits by τ = 1 + `spread` in training, which makes attention more uniform.

    Schedules multiply the spread: with ``over=decreasing@1`` training ends at τ = 1, that of evaluation.
    """

    stage: ClassVar[Stage] = "logits"
    strength: ClassVar[str] = "spread"

    spread: float = Field(default=0.5, ge=0.0, description="temperature of the softmax, minus 1")

    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Attend at a temperature; an additive mask is part of the logits. Shapes as in `AroundAttention.around`."""
        temperature = 1.0 + site.ratio
        scale = (q.shape[-1] ** -0.5 if scale is None else scale) / temperature
        if mask is not None and mask.is_floating_point():
            mask = mask / temperature
        return inner(q, k, v, mask=mask, causal=causal, scale=scale)


class ChangedLogits(AroundAttention):
    """Changes the logits by a function of them. A subclass implements `change`.

    The changed logits are passed on as an additive mask of queries and keys at scale 0.
    """

    stage: ClassVar[Stage] = "logits"

    @abstractmethod
    def change(self, logits: Tensor, allowed: Tensor, site: Site) -> Tensor:
        """Return the logits (B, H, T, S) changed where `allowed`, boolean and of their shape; at least in float32."""

    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Attend with changed logits; shapes as in `AroundAttention.around`."""
        import torch

        from harness.attention.reference.sdpa import allowed_keys, attention_logits, autocast, with_causal

        q, k, v = autocast(q, k, v)
        dtype = torch.promote_types(q.dtype, torch.float32)
        if causal:
            mask = with_causal(mask, q.shape[-2], k.shape[-2], q.device)
        with torch.autocast(q.device.type, enabled=False):
            logits = attention_logits(q.to(dtype), k.to(dtype), mask=mask, scale=scale)
            allowed = allowed_keys(mask) if mask is not None else logits.new_ones(1, dtype=torch.bool)
            logits = self.change(logits, allowed.expand(logits.shape), site)
            out = inner(q.to(dtype), k.to(dtype), v.to(dtype), mask=logits, causal=False, scale=0.0)
        return out.to(q.dtype)


class AttentionDropTopK(ChangedLogits):
    """Sets each of the k largest logits of a row to 0 with probability p (Baig et al. 2025, "AttentionDrop", HAM)."""

    ratio: float = RATIO
    top: int = Field(default=5, ge=1, description="how many of the largest logits of a row may be set to 0")

    def change(self, logits: Tensor, allowed: Tensor, site: Site) -> Tensor:
        """Return the logits, 0 where dropped."""
        import torch

        ranked = logits.detach().masked_fill(~allowed, float("-inf"))
        largest = ranked.topk(min(self.top, logits.shape[-1]), dim=-1).indices
        drop_mask = torch.rand(largest.shape, device=logits.device) < site.ratio
        drop_mask = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device).scatter(-1, largest, drop_mask)
        # Multiply by 0 instead of filling with 0: filling would hide a NaN.
        return logits * ~(drop_mask & allowed)


class AttentionDropBlur(ChangedLogits):
    """Blurs each row of logits by a Gaussian of random width (Baig et al. 2025, "AttentionDrop", BAS).

    A batch shares the width, which is uniform between 0 and σ. Keys that a query may not attend to are left out of the
    weighted mean, as is what lies beyond the ends of the row.
    """

    strength: ClassVar[str] = "sigma"
    draws_per_batch: ClassVar[bool] = True

    sigma: float = Field(default=1.0, ge=0.0, description="standard deviation of the noise, or its maximum")
    window: int = Field(default=5, ge=3, description="keys under the Gaussian, an odd number")

    @field_validator("window")
    @classmethod
    def _odd(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("expected an odd number")
        return window

    def change(self, logits: Tensor, allowed: Tensor, site: Site) -> Tensor:
        """Return the weighted mean of neighbouring logits."""
        import torch

        width = max(site.ratio * float(torch.rand(())), 1e-3)  # narrower: no neighbour has weight
        keys = torch.arange(logits.shape[-1], dtype=logits.dtype, device=logits.device)
        offsets = (keys[:, None] - keys).abs()
        # A product with a banded matrix is many times faster than a convolution of one channel.
        gauss = torch.exp(-0.5 * (offsets / width).square()) * (offsets <= self.window // 2)
        weights = (allowed.to(logits.dtype) @ gauss).clamp_min(torch.finfo(logits.dtype).tiny)
        # A NaN of a key that is not allowed stays where it is.
        return torch.where(allowed, logits.masked_fill(~allowed, 0.0) @ gauss / weights, logits)
