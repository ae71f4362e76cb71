"""Regularizers of whole layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import Site, SiteKind, Stage, drop_ratio

if TYPE_CHECKING:
    from torch import Tensor


class LayerDrop(PlainAttention):
    """Skips each layer with probability `ratio`, for the whole batch (Fan et al. 2020, "LayerDrop").

    Processes that train together skip the same layers. Layers that change the shape of the hidden states, as between
    the stages of an image model, are never skipped.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"layer"})
    stage: ClassVar[Stage] = "layer"
    draws_per_batch: ClassVar[bool] = True

    ratio: float = drop_ratio(0.2)

    def run_layer(self, layer: Callable[[], Tensor], x: Tensor, site: Site) -> Tensor:
        import torch

        from dropbench.harness.seeding import shared_generator  # which needs torch

        return x if float(torch.rand((), generator=shared_generator())) < site.ratio else layer()
