"""A site: one place in a model where attention, or a feed-forward output, is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from harness.feedforward import SiteModule
    from harness.regularizers.base import Regularizer

SiteKind = Literal[
    "encoder-self", "decoder-self", "cross", "class", "outlook", "token",
    "feed-forward", "attention-output", "embedding", "mask-input",
]  # fmt: skip
"""Attention by what attends to what (token: where the tokens are still being made, as in T2T-ViT's T2T module); then
outputs (of the feed-forward block, of attention after its projection, of the embeddings), and the place where a model
offers its embeddings for masks that are computed before all layers."""
Probe = Callable[["Site", "Tensor"], None]
"""Called with the site and its attention weights (B, H, T, S) at every forward pass: 0 where a query may not attend to
a key, and nowhere else."""


@dataclass(eq=False)
class Site:
    """Where attention is computed, and what regularises it there.

    Attributes:
        name: the module's path in the model.
        kind: what is computed there; see `SiteKind`.
        layer: index of the layer in its stack, from 0, for the schedule.
        depth: number of layers in that stack.
        heads: attention heads.
        grid: rows and columns of the key tokens where they form one (vision), else None.
        prefix: key tokens before the grid (class token, distillation token); never part of the grid.
        regularizer: what drops here; None: nothing.
        ratio: the layer's drop ratio, from the schedule.
        probe: an observer of the attention weights, for analyses; costs the fused kernels while it is set.
        width: channels of the output (of attention: of all heads together); None: not known.
        embedded: whether the model hands what its mask-input site derives from the embeddings on to this one.
        module: the part of the regularizer that lives in the model, on in evaluation too; most have none.
        hidden: in evaluation, keys that no query may attend to: boolean (B or 1, S), True where hidden (`occlusion`).
        draws: in evaluation, weights averaged over so many draws of the regularizer (`harness.align`); 0: plain ones.
    """

    name: str
    kind: SiteKind
    layer: int
    depth: int
    heads: int
    grid: tuple[int, int] | None = None
    prefix: int = 0
    regularizer: Regularizer | None = field(default=None, repr=False)
    ratio: float = 0.0
    probe: Probe | None = field(default=None, repr=False)
    width: int | None = None
    embedded: bool = False
    module: SiteModule | None = field(default=None, repr=False)
    hidden: Tensor | None = field(default=None, repr=False)
    draws: int = field(default=0, repr=False)
