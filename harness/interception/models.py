"""An adapter of every module that calls SDPA or a softmax over keys, whatever library it is from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from dropbench.harness.interception.calls import attention_calls, computes_softmax, original_class
from dropbench.harness.interception.grids import Grid, key_grid
from dropbench.harness.interception.mode import intercepted_class
from dropbench.harness.models.adapter import Adapter, Patch, number_layers, parents_of, stack_of
from dropbench.harness.regularizers.base import Site, SiteKind
from dropbench.harness.regularizers.output import SiteModule

HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "heads", "nhead", "attention_heads", "num_attn_heads")
"""The names that libraries have for the number of heads."""
OTHER_ATTENTION = {
    "XCA|CrossCovariance|Channel": "it attends over channels, not tokens",
    "^SpatialTransformerBlock$": "it attends over the samples of a batch, not tokens",
    "AssignAttention": "its softmax is over queries, not keys",
    "Factor|Linear|SSD|Lambda|Additive|Performer|Fourier": "it is linear attention, without a softmax over keys",
}
"""Patterns of class names whose softmax has no row of keys for each query."""
MIXED_HEADS = "^GPSA$|^CascadedGroupAttention$|^HaloAttn$"
"""Classes whose calls of attention do not show heads: they mix the weights of two, or have heads or blocks instead."""
INTERCEPTED = ("sdpa", "eager")
"""transformers' implementations that call SDPA or softmax; the others are kernels that nothing can intercept."""


@dataclass(frozen=True)
class InterceptionPatch(Patch):
    """A module whose attention calls are intercepted; see `dropbench.harness.interception.mode`."""

    def attach(self) -> None:
        self.module.__class__ = intercepted_class(original_class(self.module))
        vars(self.module)["site"] = self.site


class AnyModel(Adapter):
    """An adapter of every attention module, found by what its code calls (`attention_calls`).

    Cross attention is recognized by the class or name of its module, a decoder's self attention by being causal or part
    of a decoder; all other attention is an encoder's. Layers are numbered for each stack (nn.ModuleList) and kind. A
    module that runs as several layers (Albert) is one site.
    """

    name = "any"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Yield each module; linear attention, attention over channels and other kernels are refused by name."""
        modules, stacks = attention_modules(model), self.stacks(model)
        for path, module, kind, layer, depth in number_layers(model, modules, self.kind, stacks):
            place = (path, kind, layer, depth, _heads(module), *self.grid(model, path))
            yield self.patch(module, Site(*place))

    def stacks(self, model: nn.Module) -> Callable[[nn.Module, str], str]:
        """Return a function from model and path to the stack in which layers are counted."""
        return stack_of

    def kind(self, path: str, module: Any) -> SiteKind:
        """Return the kind of attention of a module."""
        return _kind(path, module)

    def grid(self, model: nn.Module, path: str) -> Grid:
        """Return the grid of a module's keys, and their prefix tokens."""
        return key_grid(model, path)

    def patch(self, module: nn.Module, site: Site) -> Patch:
        """Return the patch of a module."""
        site.weights_only = computes_softmax(module)
        return InterceptionPatch(module, site, refusal=_refusal(module))


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that compute attention, by path; one around others that has a softmax of its own is none.

    The modules of regularizers, such as the attention that computes a learned mask, are no sites.
    """
    modules = dict(model.named_modules())
    own = {id(part) for module in modules.values() if isinstance(module, SiteModule) for part in module.modules()}
    calls = {path: attention_calls(module) for path, module in modules.items() if id(module) not in own}
    around = {parent for path, found in calls.items() if found and path for parent in parents_of(path)}
    return {
        path: modules[path] for path, found in calls.items()
        if found == "sdpa" or (found == "softmax" and path not in around)
    }  # fmt: skip


def _refusal(module: nn.Module) -> str | None:
    name = original_class(module).__name__
    for pattern, reason in OTHER_ATTENTION.items():
        if re.search(pattern, name):
            return reason
    if getattr(module, "use_xformers", False):
        return "the module computes attention with xformers"
    implementation = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if implementation not in (*INTERCEPTED, None):
        return (
            f"{name} uses the attention implementation '{implementation}': expected {' or '.join(INTERCEPTED)}"
            " (`model.set_attn_implementation`)"
        )
    return None


def _kind(path: str, module: Any) -> SiteKind:
    name, leaf = type(module).__name__, ".".join(path.split(".")[-2:])
    if re.search("ClassAtt", name):
        return "class"
    if getattr(module, "is_cross_attention", False) is True or re.search("Cross", name):
        return "cross"
    if re.search("cross|encoder_attn|EncDec|multihead_attn", leaf):
        return "cross"
    return "decoder-self" if getattr(module, "is_causal", False) is True or "decoder" in path else "encoder-self"


def _heads(module: Any) -> int:
    if re.search(MIXED_HEADS, original_class(module).__name__):
        return 0
    for name in HEADS:
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    width, size = getattr(getattr(module, "q_proj", None), "out_features", None), getattr(module, "head_dim", None)
    if width and size:
        return int(width // size)
    return int(getattr(getattr(module, "config", None), "num_attention_heads", 1))
