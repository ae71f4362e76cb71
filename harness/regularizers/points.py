"""The published methods as named points of the space unit × window × rescale."""

from __future__ import annotations

from functools import partial

from harness.regularizers.drop import AttentionDrop

none = partial(AttentionDrop, ratio=0.0)
dropout = partial(AttentionDrop, rescale="inverse")
dropkey = partial(AttentionDrop)
dropkey_block = partial(AttentionDrop, unit="block", window=3)
dropkey_cross = partial(AttentionDrop, unit="cross", window=1)
dropattention_c = partial(AttentionDrop, unit="column")
dropattention_e = partial(AttentionDrop)
