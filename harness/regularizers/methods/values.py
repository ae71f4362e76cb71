"""Regularizers of the values that attention reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from dropbench.harness.attention.call import Call
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import RATIO, Site, Stage

if TYPE_CHECKING:
    from torch import Tensor


class ValueDropout(AroundAttention):
    """Dropout of the elements of the values: v · m / (1 − p) (Srivastava et al. 2014, "Dropout")."""

    stage: ClassVar[Stage] = "values"
    is_per_query: ClassVar[bool] = True

    ratio: float = RATIO

    @property
    def needs_values(self) -> bool:
        return True

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        from torch.nn.functional import dropout

        return inner(replace(call, v=dropout(call.v, site.ratio)))
