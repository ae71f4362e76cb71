"""Projections of attention for the heads that a regularizer keeps: dropped heads cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.parametrize import type_before_parametrizations

from dropbench.harness.memory import CheckpointedForward
from dropbench.harness.models.forward_patch import RegularizedForward
from dropbench.harness.regularizers.base import Regularizer, Site

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class KeptHeads:
    """The heads of one forward pass of an attention module that are not dropped.

    Attributes:
        heads: heads of the module.
        index: indices of the kept heads.
        factors: factors of the outputs of the kept heads; None: all are 1.
    """

    heads: int
    index: Tensor
    factors: Tensor | None

    def project(self, x: Tensor, weight: Tensor, bias: Tensor | None, parts: int = 1) -> Tensor:
        """Project x (…, C) to the kept heads: (…, parts · kept · d), by the rows of `select`."""
        return linear(x, *self.select(weight, bias, parts))

    def select(self, weight: Tensor, bias: Tensor | None, parts: int = 1) -> tuple[Tensor, Tensor | None]:
        """Return the rows of a weight and a bias that belong to the kept heads: (parts · kept · d, C).

        The rows of `weight` (parts · H · d, C) are in the order of parts, heads, d: the parts are q, k and v.
        """
        rows = weight.view(parts, self.heads, -1, weight.shape[-1]).index_select(1, self.index).flatten(0, 2)
        kept_bias = None if bias is None else bias.view(parts, self.heads, -1).index_select(1, self.index).flatten()
        return rows, kept_bias

    def merge(self, out: Tensor, projection: nn.Linear) -> Tensor:
        """Project the joined outputs of the kept heads (…, kept · d), times their factors: (…, C)."""
        columns = projection.weight.view(len(projection.weight), self.heads, -1).index_select(1, self.index)
        if self.factors is not None:
            columns = columns * self.factors[:, None].to(columns)
        return linear(out, columns.flatten(1), projection.bias)


def draw_kept_heads(site: Site, *projections: nn.Module, training: bool) -> KeptHeads | None:
    """Draw the heads of a site before they are projected; None if all are projected.

    If nothing but attention itself needs the dropped heads, a module projects by the result and calls `attend` with the
    kept heads. `projections` are the linear maps that it replaces: other classes and hooks need all heads.
    """
    regularizer = site.regularizer
    if not training or regularizer is None or site.ratio <= 0.0 or site.probe is not None or site.module is not None:
        return None
    if type(regularizer).draw_heads is Regularizer.draw_heads or torch.compiler.is_compiling():
        return None
    if not all(is_plain(projection) for projection in projections):
        return None
    drawn = regularizer.draw_heads(site)
    if drawn is None or bool(drawn.all()) or not bool(drawn.any()):
        return None
    index = drawn.nonzero().flatten()
    factors = drawn[index]
    scaled = bool((factors != 1.0).any())
    weight: Any = projections[0].weight  # no parameter under FSDP
    return KeptHeads(len(drawn), index.to(weight.device), factors.to(weight.device) if scaled else None)


class JointProjections:
    """The projections of self-attention in one forward pass, those of q, k and v in one linear map.

    They are computed for the heads that `draw_kept_heads` returns, if any.
    """

    def __init__(self, site: Site, qkv: nn.Linear, out: nn.Linear, *, training: bool) -> None:
        self.heads, self.qkv, self.out = site.heads, qkv, out
        self.kept = draw_kept_heads(site, qkv, out, training=training)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (B, N, C) to q, k and v, each (B, heads, N, d)."""
        if self.kept is None:
            qkv, heads = self.qkv(x), self.heads
        else:
            qkv, heads = self.kept.project(x, self.qkv.weight, self.qkv.bias, 3), len(self.kept.index)
        q, k, v = split_heads(qkv, 3, heads)
        return q, k, v

    def split_first(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project the first token of x (B, N, C) to q (B, heads, 1, d), and all to k and v (B, heads, N, d)."""
        weight: Tensor = self.qkv.weight
        bias: Tensor | None = self.qkv.bias
        heads = self.heads
        if self.kept is not None:
            (weight, bias), heads = self.kept.select(weight, bias, 3), len(self.kept.index)
        width = len(weight) // 3
        of_q, of_kv = weight.split([width, 2 * width])
        bias_of_q, bias_of_kv = (None, None) if bias is None else bias.split([width, 2 * width])
        (q,) = split_heads(linear(x[:, :1], of_q, bias_of_q), 1, heads)
        k, v = split_heads(linear(x, of_kv, bias_of_kv), 2, heads)
        return q, k, v

    def merge(self, out: Tensor) -> Tensor:
        """Project the output of attention (B, heads, N, d) to (B, N, C)."""
        joined = out.transpose(1, 2).flatten(2)
        projected: Tensor = self.out(joined) if self.kept is None else self.kept.merge(joined, self.out)
        return projected


def split_heads(joint: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Split joint projections (…, N, parts · heads · d) into `parts` tensors (…, heads, N, d).

    Heads and tokens change places in each part, not in all together: the gradients are then copied once, not twice.
    """
    return tuple(part.transpose(-3, -2) for part in joint.unflatten(-1, (parts, heads, -1)).unbind(-3))


def may_leave_out_queries(site: Site, layer: nn.Module, qkv: nn.Module) -> bool:
    """Return whether a layer in training may compute attention for some queries alone, by the weights of `qkv`.

    It may if nothing reads the outputs of the others: no regularizer of the site or of outputs of the layer, no probe,
    no hook.
    """
    acting = [part.regularizer for part in site.parts or (site,) if part.ratio > 0.0 and part.regularizer is not None]
    if site.probe is not None or site.module is not None or not all(each.is_per_query for each in acting):
        return False
    return type_before_parametrizations(qkv) is nn.Linear and not any(map(_is_observed, layer.modules()))


def _is_observed(module: nn.Module) -> bool:
    """Return whether a module has hooks, or another forward than that of its class and of a site with ratio 0."""
    forward = vars(module).get("forward")
    if isinstance(forward, CheckpointedForward):
        forward = forward.forward
    if isinstance(forward, RegularizedForward) and forward.site.ratio <= 0.0 and forward.site.module is None:
        forward = None
    return forward is not None or has_hooks(module)


def is_plain(module: nn.Module) -> bool:
    """Return whether a module computes nothing but its linear map."""
    return type(module) in (nn.Linear, NonDynamicallyQuantizableLinear) and is_unobserved(module)


def is_unobserved(module: nn.Module) -> bool:
    """Return whether a module has no hooks and no forward of its own, so that it need not be called."""
    return "forward" not in vars(module) and not has_hooks(module)


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module has hooks of its forward or backward pass."""
    return any(vars(module).get(hooks) for hooks in HOOKS)
