"""Regularizers of whole attention heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from harness.regularizers.around import AroundAttention, Attention
from harness.regularizers.base import RATIO, Site, Stage

if TYPE_CHECKING:
    from torch import Tensor


class DropHead(AroundAttention):
    """Drops whole heads of each sample: o_h · ξ_h · H / Σξ (Zhou et al. 2020, "Scheduled DropHead", Section 3.1).

    If all heads of a sample would be dropped, it keeps all of them.
    """

    stage: ClassVar[Stage] = "heads"

    ratio: float = RATIO

    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Attend, and multiply the output of each head by its mask; shapes as in `AroundAttention.around`."""
        import torch

        kept = torch.rand(q.shape[0], q.shape[1], 1, 1, device=q.device) >= site.ratio
        kept = kept | ~kept.any(dim=1, keepdim=True)
        out = inner(q, k, v, mask=mask, causal=causal, scale=scale)
        return out * (kept * (q.shape[1] / kept.sum(dim=1, keepdim=True))).to(out.dtype)
