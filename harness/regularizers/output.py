"""Regularized outputs of blocks: the call that models make for feed-forward and other outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.around import with_shape

if TYPE_CHECKING:
    from dropbench.harness.attention.key_values import KeyValues
    from dropbench.harness.regularizers.base import Site


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


class WeightModule(nn.Module, ABC):
    """The part of a regularizer that computes a weight matrix from its parameter, one per weight site."""

    @abstractmethod
    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight to use, in the shape of the parameter (out, in)."""

    def penalty(self, step: int) -> Tensor | None:
        """Return the scalar to add to the loss at optimizer step `step` (from 0); None: nothing."""
        return None


class SiteModules(SiteModule):
    """The modules of a site's parts in a composition, applied one after another; each has its own penalty."""

    def __init__(self, modules: Sequence[SiteModule]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    @classmethod
    def of_parts(cls, site: Site) -> nn.Module | None:
        """Return the modules of a site's parts as one; None if no part has one."""
        modules: list[Any] = [part.module for part in site.parts if part.module is not None]
        return cls(modules) if len(modules) > 1 else next(iter(modules), None)

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        for module in self.parts:
            x = module(x, **context)
        return x


def regularized_output(
    x: Tensor,
    site: Site,
    *,
    training: bool,
    mask: Tensor | None = None,
    causal: bool = False,
    embed: Tensor | None = None,
    cache: KeyValues | None = None,
) -> Tensor:
    """Return a site's output regularized, or x itself if nothing acts on it. Shapes as in `SiteModule.forward`.

    A cache, for modules that attend to the tokens before x, is passed to the module only if there is one.

    Raises:
        InputError: the output has another width than the site, or the regularizer returns another shape.
    """
    if training and site.regularizer is not None and site.ratio > 0.0:
        x = with_shape(site.regularizer.output(x, site), x.shape, site.regularizer)
    if site.module is None:
        return x
    if x.shape[-1] != site.width:
        raise InputError(f"{site.name}: an output of width {x.shape[-1]}: expected {site.width}, the width of the site")
    cached = {} if cache is None else {"cache": cache}
    regularized: Tensor = site.module(x, training=training, mask=mask, causal=causal, embed=embed, **cached)
    return regularized


def regularized_heads(
    out: Tensor, site: Site, *, training: bool, keys: int, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Return the output of self-attention (B, H, T, e) regularized, as (B, T, H·e) for the regularizer.

    `keys` is the number of keys that the queries attended to; `mask` and `causal` are those of the attention.

    Raises:
        InputError: there are other keys than queries, as with a key-value cache or in cross-attention.
    """
    if keys != out.shape[-2]:
        raise InputError(
            f"{site.name}: {out.shape[-2]} queries on {keys} keys: a regularizer of attention outputs needs the whole"
            " sequence at once: turn the key-value cache off, and exclude cross-attention and modules that add keys"
        )
    concatenated = out.transpose(1, 2).flatten(2)
    concatenated = regularized_output(concatenated, site, training=training, mask=mask, causal=causal)
    return concatenated.view(*concatenated.shape[:2], out.shape[1], out.shape[3]).transpose(1, 2)
