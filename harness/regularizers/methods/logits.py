"""Regularizers of attention logits, before the softmax."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator

from dropbench.harness.attention.call import Call, plain
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import RATIO, Site, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from dropbench.harness.attention.reference.drop_masks import DropSpec


class LogitNoise(AroundAttention):
    """Adds Gaussian noise to the logits: a_j + ε_j with ε_j ~ N(0, σ²), independent for every query and key."""

    stage: ClassVar[Stage] = "logits"
    is_per_query: ClassVar[bool] = True
    strength: ClassVar[str] = "sigma"

    sigma: float = Field(default=0.1, ge=0.0, description="standard deviation of the noise, or its maximum")

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        from dropbench.harness.attention.reference.sdpa import mask_logits  # which needs torch

        noise = call.q.new_empty(*call.q.shape[:-1], call.k.shape[-2]).normal_().mul_(site.ratio)
        return inner(replace(call, mask=mask_logits(noise, call.mask)))


class Temperature(AroundAttention):
    """Divides the logits by τ = 1 + `spread` in training, which makes attention more uniform.

    It divides the queries: torch.compile would make a graph for each scale. Schedules multiply the spread: with
    ``over=decreasing@1`` training ends at τ = 1, that of evaluation.
    """

    stage: ClassVar[Stage] = "logits"
    is_per_query: ClassVar[bool] = True
    strength: ClassVar[str] = "spread"

    spread: float = Field(default=0.5, ge=0.0, description="temperature of the softmax, minus 1")

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Attend at a temperature; an additive mask is part of the logits."""
        temperature, mask = 1.0 + site.ratio, call.mask
        if mask is not None and mask.is_floating_point():
            mask = mask / temperature
        return inner(replace(call, q=call.q / temperature, mask=mask))


class ChangedLogits(AroundAttention):
    """Changes the logits by a function of them. A subclass implements `change`.

    The changed logits are passed on as an additive mask of queries and keys at scale 0.
    """

    stage: ClassVar[Stage] = "logits"

    @abstractmethod
    def change(self, logits: Tensor, allowed: Tensor, site: Site) -> Tensor:
        """Return the logits (B, H, T, S) changed where `allowed`, boolean and of their shape; at least in float32."""

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        import torch

        from dropbench.harness.attention.reference.sdpa import autocast, without_autocast

        q, k, v = autocast(call.q, call.k, call.v)
        dtype, half = torch.promote_types(q.dtype, torch.float32), q.dtype
        call = replace(call, q=q.to(dtype), k=k.to(dtype), v=v.to(dtype))
        with without_autocast(q.device.type):
            return self.in_float(call, site, inner).to(half)

    def in_float(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Attend as `around` does, with q, k and v at least in float32."""
        from dropbench.harness.attention.reference.sdpa import allowed_keys, attention_logits, masked_softmax

        call = call.with_merged_mask()
        logits = attention_logits(call.q, call.k, mask=call.mask, scale=call.scale)
        allowed = allowed_keys(call.mask) if call.mask is not None else logits.new_ones(1).bool()
        logits = self.change(logits, allowed.expand(logits.shape), site)
        if inner is plain:
            return masked_softmax(logits) @ call.v
        return inner(replace(call, mask=logits, scale=0.0))


class AttentionDropTopK(ChangedLogits):
    """Sets each of the k largest logits of a row to 0 with probability p (Baig et al. 2025, "AttentionDrop", HAM)."""

    is_per_query: ClassVar[bool] = True

    ratio: float = RATIO
    top: int = Field(default=5, ge=1, description="how many of the largest logits of a row may be set to 0")

    def change(self, logits: Tensor, allowed: Tensor, site: Site) -> Tensor:
        from dropbench.harness.attention.reference.drop_masks import drop_mask
        from dropbench.harness.attention.reference.eager import zero_top

        spec = self._sample_spec(logits.shape[-1], site)
        batch, heads, rows, keys = logits.shape
        return zero_top(logits, ~drop_mask(spec, (batch, heads, rows, keys), logits.device), self.top, allowed)

    def attend_fused(self, call: Call, site: Site) -> Tensor | None:
        """Compute `attend` without stored logits where `dropbench.harness.attention.backends` can."""
        if type(self).change is not AttentionDropTopK.change:
            return super().attend_fused(call, site)
        from dropbench.harness.attention.dispatch import drop_attention  # which needs torch

        spec = self._sample_spec(call.k.shape[-2], site)
        return drop_attention(call, spec, "renormalize", site.ratio, top=self.top)

    def _sample_spec(self, seqlen_k: int, site: Site) -> DropSpec:
        """Draw for all keys: only decisions on the largest logits count."""
        from dropbench.harness.attention.reference.drop_masks import sample_spec  # which needs torch

        return sample_spec("element", site.ratio, 1, seqlen_k, stream=site.layer)


class AttentionDropBlur(ChangedLogits):
    """Blurs each row of logits by a Gaussian of random width (Baig et al. 2025, "AttentionDrop", BAS).

    A batch shares the width, which is uniform between 0 and σ. Keys that a query may not attend to are left out of the
    weighted mean, as is what lies beyond the ends of the row.
    """

    is_per_query: ClassVar[bool] = True
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
        return self._blur(logits, allowed, self._gauss(logits, logits.shape[-1], site))

    def in_float(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Blur the keys if all queries may attend to the same ones: q · Σ g k is Σ g (q · k), without stored logits."""
        from dropbench.harness.attention.reference.sdpa import allowed_keys

        k, mask = call.k, call.mask
        if call.causal or (mask is not None and max(mask.shape[-3:-1], default=1) > 1):
            return super().in_float(call, site, inner)
        gauss = self._gauss(k, k.shape[-2], site)
        keys = k.transpose(1, 2).flatten(2)  # (B, S, H·d): one matrix product for all heads
        if mask is None:
            keys = (gauss / gauss.sum(dim=0)).T @ keys
        else:
            allowed = allowed_keys(mask).view(-1, 1, mask.shape[-1]).expand(-1, 1, k.shape[-2])
            keys = self._blur(keys.transpose(1, 2), allowed, gauss).transpose(1, 2)
            if mask.is_floating_point():
                added = mask.to(k.dtype).view(-1, 1, mask.shape[-1]).expand_as(allowed)
                mask = self._blur(added, allowed, gauss).unsqueeze(1)
        k = keys.unflatten(2, (k.shape[1], -1)).transpose(1, 2)
        return inner(replace(call, k=k, mask=mask))

    def _gauss(self, like: Tensor, keys: int, site: Site) -> Tensor:
        """Return the Gaussian of a random width for each pair of keys, (S, S)."""
        import torch

        width = max(site.ratio * float(torch.rand(())), 1e-3)  # narrower: no neighbour has weight
        position = torch.arange(keys, dtype=like.dtype, device=like.device)
        offsets = (position[:, None] - position).abs()
        return torch.exp(-0.5 * (offsets / width).square()) * (offsets <= self.window // 2)

    def _blur(self, x: Tensor, allowed: Tensor, gauss: Tensor) -> Tensor:
        """Return the weighted mean of x over neighbouring allowed keys, its last axis."""
        import torch

        weights = (allowed.to(x.dtype) @ gauss).clamp_min(torch.finfo(x.dtype).tiny)
        # A product with a banded matrix is many times faster than a convolution of one channel.
        # A NaN of a key that is not allowed stays where it is.
        return torch.where(allowed, x.masked_fill(~allowed, 0.0) @ gauss / weights, x)
