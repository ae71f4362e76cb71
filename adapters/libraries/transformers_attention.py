"""The attention functions that replace those of transformers' models.

An attention module looks up its attention function in a table, by the name in the model's config. DropBench registers
two functions, each in place of one of the library's own. The table of masks needs the same names: without them, padding
and causal masks would silently be None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask

from dropbench.harness.attention.reference.sdpa import attention_logits, attention_weights, mask_logits, masked_softmax
from dropbench.harness.errors import InputError
from dropbench.harness.models.adapter import can_use_original_forward, site_of
from dropbench.harness.models.attention import attend, attend_logits
from dropbench.harness.regularizers.base import Site

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
"""(module, q (B, H, T, d), k and v (B, key heads, S, d), mask, **options) → output (B, T, H, d), weights or None."""

PREFIX = "dropbench-"
SUPPORTED = ("sdpa", "eager")
"""The implementations that can be replaced. The others (flash, flex) have masks of another form."""

UNSUPPORTED_OPTIONS = ("s_aux", "sinks", "indices", "block_indices")
"""Options that request more than softmax(q·k + bias)·v."""


@dataclass(eq=False)
class InterfaceSite(Site):
    """A site in a transformers model.

    Unpickling or copying a site imports this module, which registers the attention functions.

    Attributes:
        original: the library's function for this module, called when nothing is dropped.
    """

    original: AttentionFunction = field(kw_only=True, repr=False)


def uses_interface(module: nn.Module) -> bool:
    """Return whether a module's forward looks up its attention function in the table."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def checks_name(module: nn.Module) -> bool:
    """Return whether a module's code compares the implementation's name with "sdpa"."""
    functions = [inspect.unwrap(function) for function in vars(type(module)).values() if inspect.isfunction(function)]
    constants = [constant for function in functions for constant in function.__code__.co_consts]
    return any(constant == "sdpa" or (isinstance(constant, tuple) and "sdpa" in constant) for constant in constants)


def original_function(module: Any) -> AttentionFunction:
    """Return the library's attention function for a module; a model's file may define its own versions."""
    scope = inspect.unwrap(type(module).forward).__globals__
    name = module.config._attn_implementation.removeprefix(PREFIX)
    function: AttentionFunction = scope["ALL_ATTENTION_FUNCTIONS"].get_interface(name, scope["eager_attention_forward"])
    return function


@torch.no_grad()
def matches_reference(module: nn.Module) -> bool:
    """Return whether the library's function for a module equals `attend` on small inputs."""
    groups = int(getattr(module, "num_key_value_groups", 1))
    q, k, v = (
        (torch.arange(heads * rows * 4, dtype=torch.float32, device="cpu") * step).sin().view(1, heads, rows, 4)
        for heads, rows, step in ((2 * groups, 3, 0.7), (2, 5, 1.1), (2, 5, 1.9))
    )
    mask = torch.zeros(1, 1, 3, 5, device="cpu")
    mask[..., 1:, 4] = torch.finfo(mask.dtype).min
    site = Site("", "encoder-self", 0, 1, 2 * groups)
    try:
        theirs, _ = original_function(module)(module, q, k, v, mask, scaling=0.5, dropout=0.0)
        ours, _ = _attend(site, q, k, v, mask, training=False, weights=False, scaling=0.5)
    except Exception:  # an unusual function may fail in any way on plain inputs
        return False
    return theirs.shape == ours.shape and torch.allclose(theirs, ours, atol=1e-5)


def regularized_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    eager: bool,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Replace "sdpa" or "eager".

    "sdpa" without a mask is causal if the module or the caller says so. "eager" always has a mask, and the weights
    before dropping are returned.
    """
    site = site_of(module)
    if not isinstance(site, InterfaceSite):
        return original_function(module)(module, query, key, value, attention_mask, **options)
    if can_use_original_forward(module):
        return site.original(module, query, key, value, attention_mask, **options)
    for name in UNSUPPORTED_OPTIONS:
        if options.get(name) is not None:
            raise InputError(
                f"{site.name}: {type(module).__name__} uses '{name}', which regularized attention does not"
                f" support: expected softmax(q·k + bias)·v; skip the site with `exclude=['{site.name}']`"
            )
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    causal = causal and not eager and attention_mask is None and query.shape[2] > 1
    training = module.training
    return _attend(site, query, key, value, attention_mask, training=training, weights=eager, causal=causal, **options)


def _attend(
    site: Site,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    training: bool,
    weights: bool,
    causal: bool = False,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """Call `attend` with the library's options: grouped queries, position biases, capped logits."""
    if q.shape[1] != k.shape[1]:
        k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], dim=1) for part in (k, v))
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    if position_bias is not None:
        mask, causal = mask_logits(position_bias.to(q.dtype), mask, causal=causal), False
    if softcap is None:
        out = attend(q, k, v, site, training=training, mask=mask, causal=causal, scale=scaling)
        undropped = attention_weights(q, k, mask=mask, causal=causal, scale=scaling) if weights else None
        return out.transpose(1, 2), undropped
    logits = softcap * (attention_logits(q, k, scale=scaling) / softcap).tanh()
    out = attend_logits(logits, v, site, training=training, mask=mask, causal=causal)
    return out.transpose(1, 2), masked_softmax(mask_logits(logits, mask, causal=causal)) if weights else None


for _name, _mask in (("sdpa", sdpa_mask), ("eager", eager_mask)):
    AttentionInterface.register(PREFIX + _name, partial(regularized_attention, eager=_name == "eager"))
    AttentionMaskInterface.register(PREFIX + _name, _mask)
