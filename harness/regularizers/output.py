"""Regularized outputs of blocks: the call that models make for feed-forward and other outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.around import with_shape

if TYPE_CHECKING:
    from dropbench.harness.attention.key_values import KeyValues
    from dropbench.harness.regularizers.base import Site


class SiteModule(nn.Module, ABC):
    """The part of a regularizer that lives in the model, one per site; it may hold parameters."""

    changes_output: bool = True
    """False if it only serves `Regularizer.attend`: outputs and evaluation are those of the model."""

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

    @torch.no_grad()
    def in_evaluation(self, weight: Tensor) -> Tensor:
        """Return the weight that evaluation uses; the parameter itself if it does not change."""
        training = self.training
        self.eval()
        try:
            effective: Tensor = self(weight)
        finally:
            self.train(training)
        return effective

    def penalty(self, step: int) -> Tensor | None:
        """Return the scalar to add to the loss at optimizer step `step` (from 0); None: nothing."""
        return None


def weight_modules(module: nn.Module) -> list[tuple[str, WeightModule]]:
    """Return the weight modules of one module, each with the name of its parameter."""
    chains: Any = getattr(module, "parametrizations", {})
    return [(name, chain[0]) for name, chain in chains.items() if isinstance(chain[0], WeightModule)]


def write_usual_keys(module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    """Have `state_dict` write weights under their usual keys, as evaluation uses them; a hook of `state_dict`.

    What training needs to continue has keys of its own: the state of the weight module, and the parameter if it is
    another one than the weight.
    """
    for name, built in weight_modules(module):
        own = {key: state.pop(key) for key in [key for key in state if key.startswith(prefix)]}
        raw = f"{prefix}parametrizations.{name}.original"
        parameter = own[raw]
        weight = built.in_evaluation(parameter)
        weight = own.pop(raw) if weight is parameter else weight
        followers = {prefix + other for other in vars(built)["following"]}
        first = next((key for key in own if key in followers or "." in key.removeprefix(prefix)), None)
        for key, value in own.items():
            if key == first:
                state[prefix + name] = weight
            state[key] = value
        state.setdefault(prefix + name, weight)


def read_usual_keys(module: nn.Module, state: dict[str, Any], prefix: str, *unused: Any) -> None:
    """Have `load_state_dict` accept what `write_usual_keys` writes, and weights of a model without weight modules.

    With the latter, the weight module starts anew, as `regularize` does.
    """
    for name, built in weight_modules(module):
        place = f"{prefix}parametrizations.{name}."
        weight = state.pop(prefix + name, None)
        if weight is None or f"{place}original" in state:
            continue
        state[f"{place}original"] = weight
        if built.state_dict(prefix=f"{place}0.").keys() - state.keys():
            chains: Any = module.parametrizations
            parameter, start = chains[name].original, getattr(built, "right_inverse", None)
            if start is not None and weight.shape == parameter.shape:
                start(weight.to(parameter))
            state.update(built.state_dict(prefix=f"{place}0."))


class SiteModules(SiteModule):
    """The modules of a site's parts in a composition, applied one after another; each has its own penalty."""

    def __init__(self, modules: Sequence[SiteModule]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)
        self.changes_output = any(module.changes_output for module in modules)

    @classmethod
    def of_parts(cls, site: Site) -> nn.Module | None:
        """Return the modules of a site's parts as one; None if no part has one."""
        modules: list[Any] = [part.module for part in site.parts if part.module is not None]
        return cls(modules) if len(modules) > 1 else next(iter(modules), None)

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        for module in self.parts:
            x = module(x, **context)
        return x


def output_module(site: Site) -> SiteModule | None:
    """Return the module of a site that changes its output, in evaluation, too; None: none."""
    return site.module if isinstance(site.module, SiteModule) and site.module.changes_output else None


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
