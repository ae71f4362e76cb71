"""`regularized_output`: what a model calls where a feed-forward output, or another output of a block, is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn

from harness.errors import InputError

if TYPE_CHECKING:
    from harness.regularizers.base import Regularizer
    from harness.site import Site

CHILD = "regularization"
"""Under this name a site's module is a child of the module that computes the site."""


class SiteModule(nn.Module, ABC):
    """The part of a regularizer that lives in the model, one for each site; it may hold parameters."""

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
        """Regularise an output.

        Args:
            x: (B, T, C).
            training: whether the model is in training.
            mask: which tokens may know of which, broadcastable to (B, heads, T, T): boolean or added to logits.
            causal: a token knows only of itself and those before it, beside `mask`.
            embed: (B, T, C), derived from the model's embeddings for masks that do not wait for x.

        Returns:
            (B, T, C).
        """

    def penalty(self, step: int) -> Tensor | None:
        """What it adds to the loss at optimizer step `step` (from 0), a scalar; it forgets the forward passes."""
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
    """An output as the site's regularizer leaves it; x itself where there is none. Shapes as in `SiteModule.forward`.

    Raises:
        InputError: the output has another width than the site.
    """
    if site.module is None:
        return x
    if x.shape[-1] != site.width:
        raise InputError(f"{site.name}: an output of width {x.shape[-1]}: expected {site.width}, as the site says")
    regularized: Tensor = site.module(x, training=training, mask=mask, causal=causal, embed=embed)
    return regularized


def regularized_heads(
    out: Tensor, site: Site, *, training: bool, keys: int, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """The output of attention, all heads side by side, as the site's regularizer leaves it.

    Args:
        out: (B, H, T, e).
        site: a self-attention site; its width is H·e.
        training: whether the model is in training.
        keys: how many keys the queries attended to.
        mask: as attention had it.
        causal: as attention had it.

    Returns:
        (B, H, T, e).

    Raises:
        InputError: there are more keys than queries, as with a cache of keys and values.
    """
    if keys != out.shape[-2]:
        raise InputError(
            f"{site.name}: {out.shape[-2]} queries on {keys} keys: a regularizer of attention outputs needs the whole"
            " sequence at once: expected no cache of keys and values"
        )
    joined = out.transpose(1, 2).flatten(2)
    joined = regularized_output(joined, site, training=training, mask=mask, causal=causal)
    return joined.view(*joined.shape[:2], out.shape[1], out.shape[3]).transpose(1, 2)


def install(model: nn.Module, module: nn.Module, site: Site, regularizer: Regularizer) -> None:
    """Give a site the module that the regularizer needs there, on the model's device and in its dtype.

    It becomes a child of the module that computes the site, so that its parameters are the model's: they are in
    state_dict, for optimizers, for copies and for distributed training.
    """
    uninstall(module, site)
    built = regularizer.site_module(site)
    if built is None:
        return
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    if like is not None:
        built.to(device=like.device, dtype=like.dtype)
    built.train(module.training)
    module.add_module(CHILD, built)
    site.module = built


def uninstall(module: nn.Module, site: Site) -> None:
    """Take a site's module away again, with its parameters; nothing to do where there is none."""
    site.module = None
    if isinstance(getattr(module, CHILD, None), SiteModule):
        delattr(module, CHILD)


def attention_width(module: nn.Module) -> int | None:
    """Channels of all heads together, by the module's output projection: its last linear layer; None without one."""
    linear = [child for child in module.children() if isinstance(child, nn.Linear)]
    return linear[-1].in_features if linear else None
