"""The published methods as named points of the space unit × window × rescale, and the one that drops nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from harness.regularizers.base import Regularizer
from harness.regularizers.drop import UnitDrop

if TYPE_CHECKING:
    from torch import Tensor

    from harness.site import Site


class Unregularized(Regularizer):
    """Nothing is dropped: the baseline of every table."""

    ratio: float = Field(default=0.0, ge=0.0, le=0.0, description="nothing is dropped")

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Plain attention; shapes as in `Regularizer.attend`."""
        from harness.attention import plain_attention  # which needs torch

        return plain_attention(q, k, v, mask=mask, scale=scale)


none = Unregularized
dropout = partial(UnitDrop, rescale="inverse")
dropkey = partial(UnitDrop)
dropkey_block = partial(UnitDrop, unit="block", window=3)
dropkey_cross = partial(UnitDrop, unit="cross", window=1)
dropattention_c = partial(UnitDrop, unit="column")
dropattention_e = partial(UnitDrop)
