"""Regularizers of the outputs of blocks: feed-forward networks, attention after its projection, and embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import RATIO, Site, SiteKind, Stage, drop_ratio
from dropbench.harness.regularizers.methods.tokens import DUST

if TYPE_CHECKING:
    from torch import Tensor


class StochasticDepth(PlainAttention):
    """Drops the branch of a residual connection for each sample: x + b · f(x) / (1 − p), b ~ Bernoulli(1 − p).

    (Huang et al. 2016, "Deep Networks with Stochastic Depth"). Feed-forward networks and attention are two
    branches with draws of their own. With `schedule=increasing` the ratio is the paper's linear one.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"feed-forward", "attention-output"})
    stage: ClassVar[Stage] = "output"

    ratio: float = drop_ratio(0.5)

    def output(self, x: Tensor, site: Site) -> Tensor:
        import torch

        kept = torch.rand(_shape(x, site.batch_axis), device=x.device) >= site.ratio
        return x * (kept.to(x.dtype) / (1.0 - site.ratio))


class HiddenCut(PlainAttention):
    """Sets a span of tokens to 0 after the feed-forward network, in each sample (Chen et al. 2021).

    The span has the share `ratio` of all tokens, and starts at random. Nothing is rescaled. `unit=element` drops each
    number independently instead, and divides the others by 1 − p, as HiddenKey does (Wang et al. 2024, Section 3.1).
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"feed-forward"})
    stage: ClassVar[Stage] = "output"
    result_version: ClassVar[int] = 3

    ratio: float = RATIO
    unit: Literal["span", "element"] = Field(default="span", description="one span of tokens, or independent elements")

    def output(self, x: Tensor, site: Site) -> Tensor:
        """Return the output without a span of tokens, or without some elements; shape as in `Regularizer.output`.

        Tokens on a grid (B, H, W, C) are a sequence of rows.
        """
        import torch

        if self.unit == "element":
            kept = torch.rand(x.shape, device=x.device) >= site.ratio
            return x * (kept.to(x.dtype) * (1.0 / (1.0 - site.ratio)))
        batch = x.shape[site.batch_axis]
        length = math.prod(x.shape[:-1][: site.batch_axis] + x.shape[:-1][site.batch_axis + 1 :])
        drop_mask = _spans(torch.rand(batch, device=x.device), length, site.ratio)
        drop_mask = drop_mask.T if site.batch_axis == 1 else drop_mask
        return x.masked_fill(drop_mask.reshape(*x.shape[:-1], 1), 0.0)


class DropDim(PlainAttention):
    """Sets whole embedding dimensions to 0, the same for all tokens of a sample, and divides the others by 1 − p.

    (Zhang et al. 2022, "DropDim"). `unit=element` drops each dimension independently, `unit=span` one span of them.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"feed-forward", "attention-output", "embedding"})
    stage: ClassVar[Stage] = "output"
    result_version: ClassVar[int] = 2

    ratio: float = RATIO
    unit: Literal["element", "span"] = Field(default="element", description="independent dimensions, or one span")

    def output(self, x: Tensor, site: Site) -> Tensor:
        import torch

        batch, width = x.shape[site.batch_axis], x.shape[-1]
        if self.unit == "span":
            kept = ~_spans(torch.rand(batch, device=x.device), width, site.ratio)
            scale: Tensor | float = width / (width - _span_length(width, site.ratio)).double()
        else:
            kept = torch.rand(batch, width, device=x.device) >= site.ratio
            scale = 1.0 / (1.0 - site.ratio)
        return x * (kept.to(x.dtype) * scale).view(*_shape(x, site.batch_axis)[:-1], width)


class TokenDropout(PlainAttention):
    """Sets the embeddings of whole tokens to 0: the data dropout of UniDrop (Wu et al. 2021).

    A sample is left unchanged with probability `unchanged`; otherwise each of its tokens is dropped with probability
    `ratio`. Nothing is rescaled.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"embedding"})
    stage: ClassVar[Stage] = "tokens"

    ratio: float = RATIO
    unchanged: float = Field(default=0.5, ge=0.0, lt=1.0, description="share of samples that are left unchanged")

    def output(self, x: Tensor, site: Site) -> Tensor:
        import torch

        changed = torch.rand(_shape(x, site.batch_axis), device=x.device) >= self.unchanged
        drop_mask = torch.rand(*x.shape[:-1], 1, device=x.device) < site.ratio
        return x.masked_fill(changed & drop_mask, 0.0)


def _shape(x: Any, batch_axis: int) -> list[int]:
    """Return the shape of one number per sample that fits an output."""
    return [size if axis == batch_axis else 1 for axis, size in enumerate(x.shape)]


def _span_length(length: int, ratio: float) -> Tensor:
    """Return the length of a span: the share `ratio`, at least 1, of a sequence that keeps at least 1."""
    from dropbench.harness.attention.reference.drop_masks import number_as_tensor

    # A tensor, as torch.compile would compile the model again for each length.
    return (number_as_tensor(ratio) * length + DUST).long().clamp(max=length - 1).clamp(min=1)


def _spans(uniform: Tensor, length: int, ratio: float) -> Tensor:
    """Return a boolean mask (B, length), True in one span per sample; `uniform` (B) in [0, 1) chooses its start."""
    import torch

    span = _span_length(length, ratio)
    start = (uniform * (length - span + 1)).long()[:, None]
    position = torch.arange(length, device=uniform.device)
    return (position >= start) & (position < start + span)
