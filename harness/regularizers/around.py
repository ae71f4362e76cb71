"""Regularizers that leave the computation of attention to others: plain, or surrounded by what they change."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol, get_args

from harness.errors import InputError
from harness.regularizers.base import AttentionKind, Regularizer, Site
from harness.regularizers.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor


class Attention(Protocol):
    """A computation of attention: q (B, H, T, d), k (B, H, S, d), v (B, H, S, e) → (B, H, T, e)."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, causal: bool, scale: float | None
    ) -> Tensor: ...


class PlainAttention(Regularizer):
    """A regularizer that leaves attention itself plain. Shapes and arguments as in `Regularizer`."""

    is_per_query: ClassVar[bool] = True

    def ratio_at(self, site: Site, schedule: Schedule) -> float:
        """Return 0 for attention; at other sites, as in `Regularizer`."""
        return 0.0 if site.kind in get_args(AttentionKind) else super().ratio_at(site, schedule)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        from harness.attention.reference.sdpa import plain_attention  # which needs torch

        return plain_attention(q, k, v, mask=mask, scale=scale)


class AroundAttention(Regularizer):
    """Changes queries, keys, values, the mask or the output of attention, and leaves its computation to others.

    Alone it surrounds plain attention. In a composition it surrounds the parts after it.
    """

    @abstractmethod
    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Compute attention in training by `inner`; shapes and arguments as in `Regularizer.attend_fused`."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Surround plain attention; shapes and arguments as in `Regularizer`."""
        from harness.attention.reference.sdpa import plain_attention  # which needs torch

        return self.around(q, k, v, site, plain_attention, mask=mask, causal=False, scale=scale)

    def attend_fused(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, causal: bool, scale: float | None
    ) -> Tensor | None:
        """Surround plain attention; shapes and arguments as in `Regularizer`."""
        from harness.attention.reference.sdpa import plain_attention  # which needs torch

        return self.around(q, k, v, site, plain_attention, mask=mask, causal=causal, scale=scale)


def regularized_attention(
    q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    """Compute attention in training by the regularizer of a site, fused if possible; arguments as in `attend_fused`."""
    from harness.attention.reference.sdpa import with_causal  # which needs torch

    assert site.regularizer is not None
    out = site.regularizer.attend_fused(q, k, v, site, mask=mask, causal=causal, scale=scale)
    if out is None:
        merged = with_causal(mask, q.shape[-2], k.shape[-2], q.device) if causal else mask
        out = site.regularizer.attend(q, k, v, site, mask=merged, scale=scale)
    return with_shape(out, (*q.shape[:-1], v.shape[-1]), site.regularizer)


def with_shape(out: Tensor, shape: tuple[int, ...], regularizer: Regularizer) -> Tensor:
    """Return what a regularizer has computed; raise InputError for another shape, which later sums would broadcast."""
    if getattr(out, "shape", None) != shape:
        returned = str(tuple(out.shape)) if hasattr(out, "shape") else f"{out!r:.60}"
        raise InputError(f"{type(regularizer).__name__} returned {returned}: expected a tensor of shape {tuple(shape)}")
    return out
