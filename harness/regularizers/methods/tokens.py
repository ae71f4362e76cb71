"""Regularizers of the sequence of tokens that enters the first layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import Site, SiteKind, Stage

if TYPE_CHECKING:
    from torch import Tensor

DUST = 1e-9
"""More than floats lose in a product of a share and a number, and less than any share that is meant."""


class PatchDropout(PlainAttention):
    """Keeps a random subset of the patches of each image, and all prefix tokens (Liu et al. 2022).

    Positions are embedded before. The rest of the model computes fewer tokens, which no longer form a grid.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"tokens"})
    stage: ClassVar[Stage] = "tokens"
    removes_tokens: ClassVar[bool] = True
    result_version: ClassVar[int] = 2

    ratio: float = Field(default=0.5, ge=0.0, lt=1.0, description="share of patches left out")

    def tokens(self, x: Tensor, site: Site) -> Tensor:
        """Return the prefix tokens and ⌊N · (1 − ratio)⌋ of the N patches, at least 1, in their order."""
        import torch

        leading, patches = x[:, : site.num_prefix_tokens], x[:, site.num_prefix_tokens :]
        batch, number, width = patches.shape
        kept = max(1, floor_share(1.0 - site.ratio, number))
        order = torch.rand(batch, number, device=x.device).argsort(dim=1)[:, :kept].sort(dim=1).values
        return torch.cat([leading, patches.gather(1, order[..., None].expand(-1, -1, width))], dim=1)


def floor_share(share: float, number: int) -> int:
    """Return ⌊share · number⌋ of the share that is meant: 0.29 of 100 is 29, although 0.29 * 100 is below 29."""
    return math.floor(share * number + DUST)
