"""The mask of Learned Dropout: what of it lives in the model, with its parameters (Yan 2024, "LearnedDropout")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import with_causal
from harness.errors import InputError
from harness.feedforward import SiteModule
from harness.penalty import coefficient

if TYPE_CHECKING:
    from harness.mask_statistics import MaskStatistics
    from harness.regularizers.learned import LearnedDropout

INIT_STD = 0.02
PATIENCE = 32
"""So many forward passes may wait for their penalty to be asked for."""


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
