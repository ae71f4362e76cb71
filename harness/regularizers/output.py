"""Regularized outputs of blocks: the call that models make for feed-forward and other outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn

from harness.errors import InputError

if TYPE_CHECKING:
    from harness.regularizers.base import Site


class SiteModule(nn.Module, ABC):
    """The part of a regularizer that lives in the model, one per site; it may hold parameters."""

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        *,
        training: bool,
        mask: Tensor | None = None,
        causal: bool = False,
        embed: Tensor | None = None,
    ) -> Tensor:
        """Regularize an output.

        Args:
            x: (B, T, C).
            training: whether the model is in training.
            mask: which token may attend to which, broadcastable to (B, heads, T, T): boolean or added to logits.
            causal: a token attends only to itself and earlier tokens, in addition to `mask`.
            embed: (B, T, C), derived from the model's embeddings, for masks that are computed before x.

        Returns:
            (B, T, C).
        """

    def penalty(self, step: int) -> Tensor | None:
        """Return the scalar to add to the loss at optimizer step `step` (from 0), and forget the forward passes."""
        return None


def regularized_output(
    x: Tensor,
    site: Site,
    *,
    training: bool,
    mask: Tensor | None = None,
    causal: bool = False,
    embed: Tensor | None = None,
) -> Tensor:
    """Return a site's output regularized, or x itself if nothing acts there. Shapes as in `SiteModule.forward`.

    Raises:
        InputError: the output has another width than the site.
    """
    if site.module is None:
        return x
    if x.shape[-1] != site.width:
        raise InputError(f"{site.name}: an output of width {x.shape[-1]}: expected {site.width}, the width of the site")
    regularized: Tensor = site.module(x, training=training, mask=mask, causal=causal, embed=embed)
    return regularized


def regularized_heads(
    out: Tensor, site: Site, *, training: bool, keys: int, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Return the output of attention regularized, all heads concatenated for the regularizer.

    Args:
        out: (B, H, T, e).
        site: a self-attention site; its width is H·e.
        training: whether the model is in training.
        keys: number of keys that the queries attended to.
        mask: as attention had it.
        causal: as attention had it.

    Returns:
        (B, H, T, e).

    Raises:
        InputError: there are more keys than queries, as with a key-value cache.
    """
    if keys != out.shape[-2]:
        raise InputError(
            f"{site.name}: {out.shape[-2]} queries on {keys} keys: a regularizer of attention outputs needs the whole"
            " sequence at once: turn the key-value cache off"
        )
    joined = out.transpose(1, 2).flatten(2)
    joined = regularized_output(joined, site, training=training, mask=mask, causal=causal)
    return joined.view(*joined.shape[:2], out.shape[1], out.shape[3]).transpose(1, 2)
