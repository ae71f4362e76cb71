"""Published methods as points of the space unit × window × rescale, and the baseline that drops nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import model_validator

from harness.regularizers.around import PlainAttention
from harness.regularizers.drop import UnitDrop


class Unregularized(PlainAttention):
    """The baseline of every table: nothing is dropped."""

    @model_validator(mode="before")
    @classmethod
    def _accept_ratio_0(cls, params: Any) -> Any:
        """Drop `ratio=0`, which up to 0.1 was a parameter of `none` too."""
        zero = isinstance(params, dict) and str(params.get("ratio")) in ("0", "0.0")
        return {name: value for name, value in params.items() if name != "ratio"} if zero else params


none = Unregularized
dropout = partial(UnitDrop, rescale="inverse")
dropkey = partial(UnitDrop)
dropkey_block = partial(UnitDrop, unit="block", window=3)
dropkey_cross = partial(UnitDrop, unit="cross", window=1)
dropattention_c = partial(UnitDrop, unit="column")
dropattention_e = partial(UnitDrop)
dropattention_detached = partial(UnitDrop, rescale="detached")
