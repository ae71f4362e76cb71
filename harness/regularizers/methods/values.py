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
        import torch

        if torch.compiler.is_compiling():  # with each ratio of torch's dropout, it makes a new graph
            drop_mask = torch.rand(call.v.shape, device=call.v.device) < site.ratio
            return inner(replace(call, v=call.v.masked_fill(drop_mask, 0.0) / (1.0 - site.ratio)))
        return inner(replace(call, v=torch.nn.functional.dropout(call.v, site.ratio)))
