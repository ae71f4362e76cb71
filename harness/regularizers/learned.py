"""Learned Dropout: a mask that the model learns to compute from its input, on in evaluation too (Yan 2024)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import with_causal
from harness.errors import InputError
from harness.feedforward import SiteModule
from harness.penalty import coefficient
from harness.regularizers.base import Regularizer

if TYPE_CHECKING:
    from harness.mask_statistics import MaskStatistics
    from harness.site import Site, SiteKind

MaskRounding = Literal["noise-and-linear", "sigmoid", "sigmoid-detach", "none"]
SIGMOID_SCALE = 60.0
INIT_STD = 0.02
PATIENCE = 32
"""So many forward passes may wait for their penalty to be asked for."""

_ATTENTION: frozenset[SiteKind] = frozenset({"encoder-self", "decoder-self"})
_WHERE: dict[str, frozenset[SiteKind]] = {
    "feed-forward": frozenset({"feed-forward"}),
    "attention": _ATTENTION,
    "everywhere": _ATTENTION | {"feed-forward", "attention-output", "embedding"},
}


class LearnedDropout(Regularizer):
    """Learned Dropout, with the choices of its author (Yan 2024, "LearnedDropout") and those that he wished for.

    A site's output X (B, T, C) is multiplied by a mask that multi-head attention on X itself gives, without output
    projection: M = 0.5 cos(out + B) + 0.5, one shift B a channel, then rounded to 0 and 1. Nothing is rescaled.
    Its drop ratio is learnt, so that there is none to set, and schedules over layers have no effect.
    """

    ratio: ClassVar[float] = 0.0  # type: ignore[misc]

    where: Literal["feed-forward", "attention", "everywhere"] = Field(
        default="feed-forward", description="which outputs: everywhere stands in place of every dropout of the model"
    )
    mask_rounding: MaskRounding = Field(default="noise-and-linear", description="how the mask becomes 0 or 1")
    sigmoid_scale: float = Field(default=SIGMOID_SCALE, gt=0, description="steepness of the sigmoid roundings")
    shift_init: float = Field(default=0.0, ge=0, le=math.pi, description="initial shift B: 0 keeps all, pi nothing")
    harmonics: int = Field(default=1, ge=1, description="terms of the Fourier series; 1: the source's cosine")
    dropout_input: Literal["hidden-state", "embed"] = Field(
        default="hidden-state", description="what masks come from; embed: the source's pre-computed masks"
    )
    detached_input: bool = Field(default=False, description="no gradient from a mask to what it comes from")
    evaluation: Literal["deterministic", "probabilistic"] = Field(
        default="deterministic", description="noise-and-linear in evaluation: by the threshold 0.5, or as in training"
    )
    heads: int = Field(default=0, ge=0, description="heads of the mask's attention; 0: as many as the model's")
    bias: bool = Field(default=False, description="biases in the mask's attention")
    l1_norm_penalty: Literal["squared", "linear", "none"] = Field(
        default="squared", description="mean of M²/2, of |M|, or no penalty"
    )
    max_coeff: float = Field(default=0.1, gt=0, description="coefficient of the L1 norm penalty, at most")
    min_coeff: float = Field(default=0.0, ge=0, description="at step 0, where exp_rate lets it grow")
    exp_rate: float = Field(default=0.0, ge=0, lt=1, description="growth of the coefficient a step; 0: constant")
    entropy_penalty: bool = Field(default=False, description="mean of -M log2 M beside it")
    entropy_max_coeff: float = Field(default=0.1, gt=0)
    entropy_min_coeff: float = Field(default=0.0, ge=0)
    entropy_exp_rate: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.sigmoid_scale != SIGMOID_SCALE and not self.mask_rounding.startswith("sigmoid"):
            raise ValueError(f"sigmoid_scale is for the sigmoid roundings, not for '{self.mask_rounding}'")
        if self.evaluation == "probabilistic" and self.mask_rounding != "noise-and-linear":
            raise ValueError(f"probabilistic evaluation needs mask_rounding=noise-and-linear, not {self.mask_rounding}")
        if self.dropout_input == "embed" and self.where != "feed-forward":
            raise ValueError(f"dropout_input=embed is for where=feed-forward, not where={self.where}")
        for least, most, rate in (
            (self.min_coeff, self.max_coeff, self.exp_rate),
            (self.entropy_min_coeff, self.entropy_max_coeff, self.entropy_exp_rate),
        ):
            if least and not rate:
                raise ValueError("min_coeff needs an exp_rate above 0")
            if least >= most:
                raise ValueError(f"min_coeff={least:g} is not below max_coeff={most:g}")
        return self

    def skip(self, site: Site) -> str | None:
        """Why it cannot work at this site; None where it can."""
        if site.kind == "mask-input":
            return None if self.dropout_input == "embed" else "masks come from hidden states"
        if site.kind not in _WHERE[self.where]:
            return f"where={self.where} leaves {site.kind} sites alone"
        if site.width is None:
            return "its width is not known"
        if site.width % (self.heads or site.heads):
            return f"{self.heads or site.heads} heads do not divide its width {site.width}"
        if site.kind in _ATTENTION and self.heads not in (0, site.heads):
            return f"its masks are for {site.heads} heads, not {self.heads}"
        if self.dropout_input == "embed" and not site.embedded:
            return "its model does not hand on embeddings for pre-computed masks"
        return None

    def site_module(self, site: Site) -> SiteModule:
        """The mask's parameters at a site, or what derives its input from the embeddings."""
        if site.width is None:
            raise InputError(f"learned-dropout: {site.name}: its width is not known")
        if site.kind == "mask-input":
            return EmbeddingAttention(site.width, site.heads, trained=not self.detached_input)
        return LearnedMask(self, site.width, self.heads or site.heads)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Plain attention: only its output is regularised. Shapes as in `Regularizer.attend`."""
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


class LearnedMask(SiteModule):
    """X ⊙ rounded M (Yan 2024, "LearnedDropout"); records its penalty in training, until it is asked for."""

    def __init__(self, options: LearnedDropout, width: int, heads: int) -> None:
        super().__init__()
        self.options, self.width, self.heads = options, width, heads
        self.qkv = nn.Linear(width, 3 * width, bias=options.bias)
        # Flat, so that optimizers treat them as what they are: vectors, which weight decay leaves alone.
        self.shift = nn.Parameter(torch.full((options.harmonics * width,), options.shift_init))
        if options.harmonics > 1:
            self.amplitude = nn.Parameter(torch.zeros(options.harmonics * width))
            nn.init.ones_(self.amplitude[:width].detach())
        _initialize(self.qkv)
        self.statistics: MaskStatistics | None = None
        self.records: list[tuple[Tensor, Tensor]] = []

    def forward(
        self,
        x: Tensor,
        *,
        training: bool,
        mask: Tensor | None = None,
        causal: bool = False,
        embed: Tensor | None = None,
    ) -> Tensor:
        """(B, T, C) → (B, T, C); see `SiteModule.forward`."""
        source = x
        if self.options.dropout_input == "embed":
            if embed is None:
                raise InputError("learned-dropout: dropout_input=embed, but the model hands no embeddings on")
            source = embed
        values = self.values(source.detach() if self.options.detached_input else source, mask=mask, causal=causal)
        rounded = self.rounded(values, training=training)
        if training:
            self.record(values)
        if self.statistics is not None:
            self.statistics.add(values.detach(), rounded.detach(), self.l1_norm(values.detach()))
        return x * rounded.to(x.dtype)

    def values(self, source: Tensor, *, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """The mask before it is rounded: M (B, T, C) in [0, 1], at least in float32, of a source (B, T, C)."""
        out = attention_of(self.qkv(source), self.heads, mask=mask, causal=causal)
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        if self.options.harmonics == 1:
            return 0.5 * torch.cos(out + self.shift) + 0.5
        shifts = self.shift.view(-1, self.width)
        amplitudes = self.amplitude.view(-1, self.width)
        # Divided by their sum, so that the series stays in [-1, 1] as the cosine does.
        amplitudes = amplitudes / amplitudes.abs().sum(dim=0)
        wave = torch.zeros_like(out)
        for order, (amplitude, shift) in enumerate(zip(amplitudes, shifts, strict=True), start=1):
            wave = wave + amplitude * torch.cos(order * out + shift)
        return 0.5 * wave + 0.5

    def rounded(self, values: Tensor, *, training: bool) -> Tensor:
        """The mask that multiplies X: M rounded as the options say, (B, T, C)."""
        rounding = self.options.mask_rounding
        if rounding == "none":
            return values
        if rounding.startswith("sigmoid"):
            steep = torch.sigmoid(self.options.sigmoid_scale * (values - 0.5))
            return steep if rounding == "sigmoid" else straight_through(steep, values)
        if training or self.options.evaluation == "probabilistic":
            kept = torch.rand_like(values) <= values
        else:
            kept = values >= 0.5
        return straight_through(kept.to(values.dtype), values)

    def l1_norm(self, values: Tensor) -> Tensor:
        """The L1 norm penalty (ibid., "Dropout L1 norm penalty"), a mean over elements; of an empty batch 0."""
        norms = values.square() / 2 if self.options.l1_norm_penalty == "squared" else values.abs()
        return norms.sum() / max(1, values.numel())

    def record(self, values: Tensor) -> None:
        """Keep the penalties of a forward pass in training until `penalty` is asked for."""
        options = self.options
        if options.l1_norm_penalty == "none" and not options.entropy_penalty:
            return
        if len(self.records) >= PATIENCE:
            raise InputError(
                f"learned-dropout: {PATIENCE} forward passes in training and nobody asked for their penalty: expected"
                " harness.penalty.penalty(model, step) in the loss of each, or l1_norm_penalty=none"
            )
        nothing = values.new_zeros(())
        l1_norm = nothing if options.l1_norm_penalty == "none" else self.l1_norm(values)
        record = (l1_norm, entropy(values) if options.entropy_penalty else nothing)
        # Checkpointing wants the same tensors again, but the loss has them already.
        if not _recomputing():
            self.records.append(record)

    def penalty(self, step: int) -> Tensor | None:
        """Each norm times its coefficient at the step; the mean over the forward passes since it was last asked for."""
        records, self.records = self.records, []
        if not records:
            return None
        options = self.options
        l1_norm, spread = (torch.stack(norms).mean() for norms in zip(*records, strict=True))
        if (
            self.training
            and torch.is_grad_enabled()
            and self.shift.requires_grad
            and not (l1_norm + spread).requires_grad
        ):
            raise InputError(
                "learned-dropout: its penalty has no gradient: expected forward passes with gradients, and activation"
                " checkpointing with use_reentrant=False"
            )
        total = l1_norm * coefficient(step, options.max_coeff, options.min_coeff, options.exp_rate)
        if options.entropy_penalty:
            factor = coefficient(step, options.entropy_max_coeff, options.entropy_min_coeff, options.entropy_exp_rate)
            total = total + spread * factor
        return total

    def __getstate__(self) -> dict[str, Any]:
        # What belongs to a forward pass is not copied: torch refuses to copy tensors that have a graph.
        return {**self.__dict__, "records": [], "statistics": None}


class EmbeddingAttention(SiteModule):
    """The input of all pre-computed masks: attention on the embeddings, then a linear layer (ibid., "A faster …").

    Where masks detach their input, nothing reaches these parameters; they keep their initial values and say so.
    """

    def __init__(self, width: int, heads: int, *, trained: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        _initialize(self.qkv)
        _initialize(self.out)
        self.requires_grad_(trained)

    def forward(
        self,
        x: Tensor,
        *,
        training: bool,
        mask: Tensor | None = None,
        causal: bool = False,
        embed: Tensor | None = None,
    ) -> Tensor:
        """Embeddings (B, T, C) → what masks come from (B, T, C)."""
        derived: Tensor = self.out(attention_of(self.qkv(x), self.heads, mask=mask, causal=causal))
        return derived


def attention_of(qkv: Tensor, heads: int, *, mask: Tensor | None, causal: bool) -> Tensor:
    """Multi-head self-attention from queries, keys and values side by side: (B, T, 3 C) → (B, T, C)."""
    batch, tokens, width = qkv.shape
    q, k, v = qkv.view(batch, tokens, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    if causal and mask is not None:
        mask, causal = with_causal(mask, tokens, tokens, qkv.device), False
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return out.transpose(1, 2).reshape(batch, tokens, width // 3)


def straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """The value of one tensor with the gradient of another; a NaN of either is one of the result.

    With value 1 where kept and 0 where dropped this is the source's M + (1 − M).detached() and M − M.detached(),
    but exactly 1 and 0: the source's own sum is only after rounding.
    """
    return value.detach() + (gradient - gradient.detach())


def entropy(values: Tensor) -> Tensor:
    """The mean of −M log2 M; of an empty batch 0. The least that keeps it finite at M = 0 is the source's, 1e-9."""
    positive = values.clamp_min(0.0)
    return (-positive * torch.log2(positive + 1e-9)).sum() / max(1, values.numel())


def _initialize(linear: nn.Linear) -> None:
    nn.init.normal_(linear.weight, std=INIT_STD)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _recomputing() -> bool:
    """Whether a backward pass is under way: activation checkpointing then runs the forward pass again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
