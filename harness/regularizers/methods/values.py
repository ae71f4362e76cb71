"""Regularizers of the values that attention reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from harness.regularizers.around import AroundAttention, Attention
from harness.regularizers.base import RATIO, Site, Stage

if TYPE_CHECKING:
    from torch import Tensor


class ValueDropout(AroundAttention):
    """Dropout of the elements of the values: v · m / (1 − p) (Srivastava et al. 2014, "Dropout")."""

    stage: ClassVar[Stage] = "values"
    is_per_query: ClassVar[bool] = True

    ratio: float = RATIO

    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Attend to the values after dropout; shapes as in `AroundAttention.around`."""
        from torch.nn.functional import dropout

        return inner(q, k, dropout(v, site.ratio), mask=mask, causal=causal, scale=scale)
