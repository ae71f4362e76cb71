"""Regularizers of whole attention heads."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from dropbench.harness.attention.call import Call
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import Site, Stage, drop_ratio

if TYPE_CHECKING:
    from torch import Tensor


class HeadSelection(AroundAttention):
    """Keeps some heads of each site and sets the output of the others to 0.

    If a batch shares its heads (`draw=batch`), attention and, in models that project by
    `dropbench.harness.models.head_skipping`, queries, keys, values and outputs are computed for the kept heads only.
    """

    stage: ClassVar[Stage] = "heads"
    is_per_query: ClassVar[bool] = True
    needs_heads: ClassVar[bool] = True

    draw: Literal["batch", "sample"] = Field(
        default="batch", description="whether a batch shares its heads, or each sample has its own"
    )

    @property
    def draws_per_batch(self) -> bool:  # type: ignore[override]
        """True with `draw=batch`."""
        return self.draw == "batch"

    @abstractmethod
    def keep_heads(self, rows: int, heads: int, site: Site) -> Tensor:
        """Return factors of the heads' outputs: floats (rows, H) on the CPU, 0 for a dropped head."""

    def draw_heads(self, site: Site) -> Tensor | None:
        """Draw the heads that a batch shares; None if it does not, or if the number of heads must not change."""
        from dropbench.harness.attention.reference.sdpa import is_transformed

        if self.draw == "batch" and not is_transformed():
            site.drawn_heads = self.keep_heads(1, site.heads, site)[0]
        return site.drawn_heads

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        import torch

        from dropbench.harness.attention.reference.sdpa import is_transformed

        batch, heads = call.q.shape[:2]
        drawn, site.drawn_heads = site.drawn_heads, None
        if drawn is not None and heads < len(drawn):  # the others are not projected
            return inner(replace(call, mask=_of_heads(call.mask, drawn.nonzero().flatten().to(call.q.device))))
        # Drawn on the CPU, so that no GPU has to be waited for to know which heads are kept.
        factors = self.keep_heads(1 if self.draw == "batch" else batch, heads, site) if drawn is None else drawn[None]
        if self.draw == "sample" or torch.compiler.is_compiling() or is_transformed():
            out = inner(call)
            return out * factors[..., None, None].to(out.device, out.dtype)
        kept = factors[0].nonzero().flatten()
        factor = factors[0, kept][:, None, None]
        if len(kept) == heads:
            out = inner(call)
            return out if bool((factor == 1.0).all()) else out * factor.to(out.device, out.dtype)
        kept = kept.to(call.q.device)
        q, k, v = (tensor.index_select(1, kept) for tensor in (call.q, call.k, call.v))
        out = inner(replace(call, q=q, k=k, v=v, mask=_of_heads(call.mask, kept)))
        # Heads are the third axis in memory, so that models join them without a copy.
        whole = out.new_zeros(batch, out.shape[2], heads, out.shape[3]).transpose(1, 2)
        return whole.index_copy(1, kept, out * factor.to(out.device, out.dtype))


def _of_heads(mask: Tensor | None, kept: Tensor) -> Tensor | None:
    """Return the mask of the kept heads, given by their indices."""
    return mask.index_select(-3, kept) if mask is not None and mask.dim() >= 3 and mask.shape[-3] > 1 else mask


class DropHead(HeadSelection):
    """Drops whole heads: o_h · ξ_h · H / Σξ (Zhou et al. 2020, "Scheduled DropHead").

    If all heads would be dropped, it keeps all of them.
    """

    ratio: float = drop_ratio(0.2)

    def skip(self, site: Site) -> str | None:
        return "a single head is never dropped" if site.heads == 1 else super().skip(site)

    def keep_heads(self, rows: int, heads: int, site: Site) -> Tensor:
        """Return ξ · H / Σξ with ξ_h = 0 with probability `Site.ratio`."""
        import torch

        kept = torch.rand(rows, heads) >= site.ratio
        kept = kept | ~kept.any(dim=1, keepdim=True)
        return kept * (heads / kept.sum(dim=1, keepdim=True).double())


class HeadMask(HeadSelection):
    """Sets the output of a number of random heads of each site to 0 (Sun et al. 2022, "HeadMask", Mask-Random).

    The outputs of the others are not rescaled.
    """

    strength: ClassVar[str] = "heads"

    heads: int = Field(default=1, ge=0, description="heads of each layer whose output is set to 0")

    def skip(self, site: Site) -> str | None:
        if 0 < site.heads <= self.heads:
            return f"heads={self.heads} would mask all of its heads: {site.heads}"
        return super().skip(site)

    def keep_heads(self, rows: int, heads: int, site: Site) -> Tensor:
        """Return 0 for round(`Site.ratio`) random heads, which schedules make fewer, and 1 for the others."""
        import torch

        from dropbench.harness.attention.reference.drop_masks import number_as_tensor

        return (torch.rand(rows, heads).argsort(dim=1) >= number_as_tensor(site.ratio).round()).to(torch.float32)
