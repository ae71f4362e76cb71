"""Keys, values and masks of the tokens that a decoder has seen, to predict the next ones from."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from dropbench.harness.attention.key_values import KeyValues
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.learned_dropout.mask import (
    EmbeddingAttention,
    LearnedMask,
    PrecomputedMasks,
    joinable,
)


class DecoderCache:
    """Keys and values of a decoder's sites in evaluation, for the weights that it has when this is created.

    Pre-computed masks of Learned Dropout are computed for all layers in one pass if they are `joinable` and the layers
    can leave out what they drop (`can_skip`).

    Attributes:
        length: number of tokens seen.

    Raises:
        InputError: a site's regularizer needs the whole sequence at once.
    """

    def __init__(self, sites: Iterable[Site], context: int, *, can_skip: bool) -> None:
        self.context, self.length = context, 0
        self._by_site: dict[str, KeyValues] = {}
        sites = [*sites]
        for site in sites:
            supported = {"feed-forward": LearnedMask, "mask-input": EmbeddingAttention}.get(site.kind)
            if site.module is not None and type(site.module) is not supported:
                raise InputError(f"{site.name}: its regularizer needs the whole sequence at once: use no cache")
        modules = [site.module for site in sites if site.kind == "feed-forward"]
        masks = joinable(modules) if can_skip else None
        self.masks = None if masks is None else PrecomputedMasks(masks, context)

    def of(self, site: Site) -> KeyValues:
        """Return the keys and values of a site's attention, or of the attention of its mask."""
        if site.name not in self._by_site:
            self._by_site[site.name] = KeyValues(self.context)
        return self._by_site[site.name]

    def keep_masks(self, embed: Tensor | None) -> list[Tensor] | None:
        """Return what the masks of all layers keep of new tokens (B, T, dim), boolean; None if layers compute them."""
        return None if self.masks is None or embed is None else [*self.masks(embed).unbind(2)]
