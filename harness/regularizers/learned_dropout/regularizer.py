"""Learned Dropout: a mask that the model learns to compute from its input, on in evaluation too (Yan 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.learned_dropout.options import MaskOptions

if TYPE_CHECKING:
    from dropbench.harness.regularizers.base import Site, SiteKind
    from dropbench.harness.regularizers.output import SiteModule

_ATTENTION: frozenset[SiteKind] = frozenset({"encoder-self", "decoder-self"})
_WHERE: dict[str, frozenset[SiteKind]] = {
    "feed-forward": frozenset({"feed-forward"}),
    "attention": _ATTENTION,
    "everywhere": _ATTENTION | {"feed-forward", "attention-output", "embedding"},
}


class LearnedDropout(MaskOptions):
    """Learned Dropout (Yan 2024, "LearnedDropout"), with the options of `MaskOptions`.

    A site's output X (B, T, C) is multiplied by a mask that multi-head attention on X itself gives, without output
    projection: M = 0.5 cos(out + B) + 0.5, one shift B per channel, then rounded to 0 and 1. Nothing is rescaled.
    The drop ratio is learned: there is none to set, and schedules over layers have no effect.
    """

    @property
    def needs_values(self) -> bool:
        return True

    def skip(self, site: Site) -> str | None:
        if site.kind == "mask-input":
            return None if self.dropout_input == "embed" else "masks come from hidden states"
        if site.kind not in _WHERE[self.where]:
            return f"where={self.where} does not act on {site.kind} sites"
        if site.width is None:
            return "its width is unknown"
        if not (self.heads or site.heads):
            return "its attention does not show its heads"
        if site.width % (self.heads or site.heads):
            return f"{self.heads or site.heads} heads do not divide its width {site.width}"
        if site.kind in _ATTENTION and self.heads not in (0, site.heads):
            return f"its masks are for {site.heads} heads, not {self.heads}"
        if self.dropout_input == "embed" and not site.embedded:
            return "its model passes no embeddings for pre-computed masks"
        return super().skip(site) if site.kind in _ATTENTION else None

    def site_module(self, site: Site) -> SiteModule:
        """Return the learned mask of a site, or the module that derives masks' input from the embeddings."""
        from dropbench.harness.regularizers.learned_dropout.mask import (  # which need torch
            EmbeddingAttention,
            LearnedMask,
        )

        if site.width is None:
            raise InputError(f"learned-dropout: {site.name}: its width is unknown")
        if site.kind == "mask-input":
            return EmbeddingAttention(site.width, site.heads, trained=not self.detached_input)
        return LearnedMask(self, site.width, self.heads or site.heads)
