"""Published methods as points of the space unit × window × rescale, and the baseline that drops nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from harness.regularizers.base import Regularizer
from harness.regularizers.drop import UnitDrop

if TYPE_CHECKING:
    from torch import Tensor

    from harness.regularizers.base import Site
    from harness.regularizers.schedules import Schedule


class Unregularized(Regularizer):
    """The baseline of every table: nothing is dropped."""

    @model_validator(mode="before")
    @classmethod
    def _accept_ratio_0(cls, params: Any) -> Any:
        """Drop `ratio=0`, which up to 0.1 was a parameter of `none` too."""
        zero = isinstance(params, dict) and str(params.get("ratio")) in ("0", "0.0")
        return {name: value for name, value in params.items() if name != "ratio"} if zero else params

    def ratio_at(self, site: Site, schedule: Schedule) -> float:
        """Return 0."""
        return 0.0

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Return plain attention; shapes as in `Regularizer.attend`."""
        from harness.attention.reference.sdpa import plain_attention  # which needs torch

        return plain_attention(q, k, v, mask=mask, scale=scale)


none = Unregularized
dropout = partial(UnitDrop, rescale="inverse")
dropkey = partial(UnitDrop)
dropkey_block = partial(UnitDrop, unit="block", window=3)
dropkey_cross = partial(UnitDrop, unit="cross", window=1)
dropattention_c = partial(UnitDrop, unit="column")
dropattention_e = partial(UnitDrop)
