"""Regularizers that leave the computation of attention to others: plain, or surrounded by what they change."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, get_args

from dropbench.harness.attention.call import Call, plain
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import AttentionKind, Regularizer, Site
from dropbench.harness.regularizers.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor


Attention = Callable[[Call], "Tensor"]
"""A computation of attention (B, H, T, e)."""


class PlainAttention(Regularizer):
    """A regularizer that leaves attention itself plain."""

    is_per_query: ClassVar[bool] = True

    @property
    def replaces_dropout(self) -> bool:
        return False

    def ratio_at(self, site: Site, schedule: Schedule) -> float:
        """Return 0 for attention; at other sites, as in `Regularizer`."""
        return 0.0 if site.kind in get_args(AttentionKind) else super().ratio_at(site, schedule)

    def attend(self, call: Call, site: Site) -> Tensor:
        return plain(call)


class AroundAttention(Regularizer):
    """Changes queries, keys, values, the mask or the output of attention, and leaves its computation to others.

    Alone it surrounds plain attention. In a composition it surrounds the parts after it.
    """

    @abstractmethod
    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Compute attention in training by `inner`; arguments and result as in `Regularizer.attend_fused`."""

    def attend(self, call: Call, site: Site) -> Tensor:
        return self.around(call, site, plain)

    def attend_fused(self, call: Call, site: Site) -> Tensor | None:
        return self.around(call, site, plain)


def replaces_dropout(site: Site) -> bool:
    """Return whether a regularizer of a site takes the place of the model's own dropout of attention weights."""
    own = (part.regularizer for part in site.parts or (site,))
    return any(regularizer is not None and regularizer.replaces_dropout for regularizer in own)


def regularized_attention(call: Call, site: Site) -> Tensor:
    """Compute attention in training by the regularizer of a site, fused if possible."""
    assert site.regularizer is not None
    out = site.regularizer.attend_fused(call, site)
    if out is None:
        out = site.regularizer.attend(call.with_merged_mask(), site)
    return with_shape(out, (*call.q.shape[:-1], call.v.shape[-1]), site.regularizer)


def with_shape(out: Tensor, shape: tuple[int, ...], regularizer: Regularizer) -> Tensor:
    """Return what a regularizer has computed; raise InputError for another shape, which later sums would broadcast."""
    if getattr(out, "shape", None) != shape:
        returned = str(tuple(out.shape)) if hasattr(out, "shape") else f"{out!r:.60}"
        raise InputError(f"{type(regularizer).__name__} returned {returned}: expected a tensor of shape {tuple(shape)}")
    return out
