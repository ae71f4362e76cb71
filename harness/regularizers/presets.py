"""Published methods as points of the space unit × window × rescale, and the baselines that drop nothing."""

from __future__ import annotations

from functools import partial

from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.drop import UnitDrop


class Unregularized(PlainAttention):
    """The baseline of every table: the model as it came, with its own dropout."""


class WithoutAttentionDropout(Unregularized):
    """The model without its own dropout of attention weights, as regularizers leave it that replace this dropout."""

    @property
    def replaces_dropout(self) -> bool:
        return True


none = Unregularized
no_attention_dropout = WithoutAttentionDropout
dropout = partial(UnitDrop, rescale="inverse")
dropkey = partial(UnitDrop)
dropkey_block = partial(UnitDrop, unit="block", window=3)
dropkey_cross = partial(UnitDrop, unit="cross", window=1)
dropattention_c = partial(UnitDrop, unit="column")
dropattention_e = partial(UnitDrop)
dropattention_detached = partial(UnitDrop, rescale="detached")
