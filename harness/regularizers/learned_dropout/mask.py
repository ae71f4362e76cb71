"""Modules of Learned Dropout (Yan 2024): the learned mask, its statistics, and pre-computed masks with their input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from dropbench.harness.attention.key_values import KeyValues
from dropbench.harness.attention.reference.sdpa import sdpa, with_causal
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.auxiliary_loss import MAX_PENDING, coefficient, recomputing
from dropbench.harness.regularizers.output import SiteModule

if TYPE_CHECKING:
    from dropbench.harness.regularizers.learned_dropout.options import MaskOptions

INIT_STD = 0.02


@dataclass
class MaskStatistics:
    """Sums over the elements of all masks of one site, as their author logged them (ibid., "Results").

    `means` divides them.

    Attributes:
        entropy: −M log2 M.
        l1_norm: M²/2 or |M|, as in the penalty.
        near_one: M > 0.9.
        near_zero: M < 0.1.
        active: 1 for each element of a token that keeps at least one.
        kept: the rounded mask, which multiplies the output; its mean is the share of ones.
        elements: number of elements.
    """

    entropy: Tensor | float = 0.0
    l1_norm: Tensor | float = 0.0
    near_one: Tensor | float = 0.0
    near_zero: Tensor | float = 0.0
    active: Tensor | float = 0.0
    kept: Tensor | float = 0.0
    elements: int = 0

    def add(self, values: Tensor, rounded: Tensor, l1_norm: Tensor) -> None:
        """Add one forward pass: the mask, the rounded mask, and the mean L1 norm; without synchronizing a device."""
        count = values.numel()
        for name, mean in (
            ("entropy", entropy(values)),
            ("l1_norm", l1_norm),
            ("near_one", (values > 0.9).sum() / max(1, count)),
            ("near_zero", (values < 0.1).sum() / max(1, count)),
            ("active", (rounded > 0).any(dim=-1).sum() / max(1, count // values.shape[-1])),
            ("kept", rounded.sum() / max(1, count)),
        ):
            setattr(self, name, getattr(self, name) + mean.double() * count)
        self.elements += count

    def merge(self, sums: Mapping[str, Any]) -> None:
        """Add the sums of other forward passes, by the names of the attributes."""
        for name, value in sums.items():
            setattr(self, name, getattr(self, name) + value)

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over all elements; NaN without elements."""
        names = [field.name for field in fields(self) if field.name != "elements"]
        return {name: float(getattr(self, name)) / self.elements if self.elements else float("nan") for name in names}


class LearnedMask(SiteModule):
    """X ⊙ rounded M (Yan 2024, "LearnedDropout"); records its penalties in training until `penalty` collects them."""

    def __init__(self, options: MaskOptions, width: int, heads: int) -> None:
        super().__init__()
        self.options, self.width, self.heads = options, width, heads
        self.qkv = nn.Linear(width, 3 * width, bias=options.bias)
        # Flat, so that optimizers treat it as a vector, which is not decayed.
        self.shift = nn.Parameter(torch.full((options.harmonics * width,), options.shift_init))
        if options.harmonics > 1:
            self.amplitude = nn.Parameter(torch.zeros(options.harmonics * width))
            nn.init.ones_(self.amplitude[:width].detach())
        _initialize(self.qkv)
        self.statistics: tuple[MaskStatistics, ...] = ()
        self.records: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor, *, training: bool, embed: Tensor | None = None, **attention: Any) -> Tensor:
        """Mask an output, (B, T, C) → (B, T, C); see `SiteModule.forward`. `attention`: its mask, causal and cache."""
        source = x
        if self.options.dropout_input == "embed":
            if embed is None:
                raise InputError("learned-dropout: dropout_input=embed, but the model passes no embeddings")
            source = embed
        return x * self.rounded_mask(source, training=training, **attention).to(x.dtype)

    def rounded_mask(self, source: Tensor, *, training: bool, **attention: Any) -> Tensor:
        """Return the mask that multiplies X, (B, T, C), from its input; record its penalties and statistics."""
        values = self.values(source.detach() if self.options.detached_input else source, **attention)
        rounded = self.rounded(values, training=training)
        if training:
            self.record(values)
        for statistics in self.statistics:
            statistics.add(values.detach(), rounded.detach(), self.l1_norm(values.detach()))
        return rounded

    @property
    def is_precomputed(self) -> bool:
        """True if in evaluation the mask is 0 or 1, and known before X."""
        options = self.options
        rounding = (options.mask_rounding, options.evaluation)
        return options.dropout_input == "embed" and rounding == ("noise-and-linear", "deterministic")

    def values(self, source: Tensor, **attention: Any) -> Tensor:
        """Return the mask before rounding: M (B, T, C) in [0, 1], at least in float32, of a source (B, T, C)."""
        out = attention_of(self.qkv(source), self.heads, **attention)
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        if self.options.harmonics == 1:
            return 0.5 * torch.cos(out + self.shift) + 0.5
        shifts = self.shift.view(-1, self.width)
        amplitudes = self.amplitude.view(-1, self.width)
        # Normalized, so that the series stays in [-1, 1] as the cosine does.
        amplitudes = amplitudes / amplitudes.abs().sum(dim=0)
        wave = torch.zeros_like(out)
        for order, (amplitude, shift) in enumerate(zip(amplitudes, shifts, strict=True), start=1):
            wave = wave + amplitude * torch.cos(order * out + shift)
        return 0.5 * wave + 0.5

    def rounded(self, values: Tensor, *, training: bool) -> Tensor:
        """Return the mask that multiplies X: M rounded as the options say, (B, T, C)."""
        rounding = self.options.mask_rounding
        if rounding == "none":
            return values
        if rounding.startswith("sigmoid"):
            steep = torch.sigmoid(self.options.sigmoid_scale * (values - 0.5))
            return steep if rounding == "sigmoid" else straight_through(steep, values)
        if training or self.options.evaluation == "probabilistic":
            keep_mask = torch.rand_like(values) <= values
        else:
            keep_mask = values >= 0.5
        return straight_through(keep_mask.to(values.dtype), values)

    def l1_norm(self, values: Tensor) -> Tensor:
        """Return the L1 norm penalty (ibid., "Dropout L1 norm penalty"), a mean over elements; 0 for an empty batch."""
        norms = values.square() / 2 if self.options.l1_norm_penalty == "squared" else values.abs()
        return norms.sum() / max(1, values.numel())

    def record(self, values: Tensor) -> None:
        """Record the penalties of a forward pass in training until `penalty` collects them."""
        options = self.options
        if options.l1_norm_penalty == "none" and not options.entropy_penalty:
            return
        if len(self.records) >= MAX_PENDING:
            raise InputError(
                f"learned-dropout: the penalties of {MAX_PENDING} training forward passes were never collected: add"
                " `auxiliary_loss.penalty(model, step)` to the loss of each, or set l1_norm_penalty=none"
            )
        zero = values.new_zeros(())
        l1_norm = zero if options.l1_norm_penalty == "none" else self.l1_norm(values)
        record = (l1_norm, entropy(values) if options.entropy_penalty else zero)
        # Activation checkpointing runs the forward pass again, but the loss has its penalty already.
        if not recomputing():
            self.records.append(record)

    def penalty(self, step: int) -> Tensor | None:
        """Return each norm times its coefficient at the step; the mean over the forward passes since the last call."""
        records, self.records = self.records, []
        if not records:
            return None
        options = self.options
        l1_norm, mean_entropy = (torch.stack(norms).mean() for norms in zip(*records, strict=True))
        needs_grad = self.training and torch.is_grad_enabled() and self.shift.requires_grad
        if needs_grad and not (l1_norm + mean_entropy).requires_grad:
            raise InputError(
                "learned-dropout: its penalty has no gradient: expected forward passes with gradients, and activation"
                " checkpointing with use_reentrant=False"
            )
        total = l1_norm * coefficient(step, options.max_coeff, options.min_coeff, options.exp_rate)
        if options.entropy_penalty:
            factor = coefficient(step, options.entropy_max_coeff, options.entropy_min_coeff, options.entropy_exp_rate)
            total = total + mean_entropy * factor
        return total

    def __getstate__(self) -> dict[str, Any]:
        # Records of forward passes are not copied: torch refuses to copy tensors that have a graph.
        return {**self.__dict__, "records": [], "statistics": ()}


class EmbeddingAttention(SiteModule):
    """The input of all pre-computed masks: attention on the embeddings, then a linear layer (ibid., "A faster …").

    If masks detach their input, no gradient reaches these parameters: they are frozen at their initial values.
    """

    def __init__(self, width: int, heads: int, *, trained: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        _initialize(self.qkv)
        _initialize(self.out)
        self.requires_grad_(trained)

    def forward(self, x: Tensor, *, training: bool, embed: Tensor | None = None, **attention: Any) -> Tensor:
        """Return the input of the masks (B, T, C) for embeddings (B, T, C)."""
        derived: Tensor = self.out(attention_of(self.qkv(x), self.heads, **attention))
        return derived


class PrecomputedMasks:
    """The masks of several sites in evaluation, from parameters as they are when this is created.

    They are computed from the embeddings in one pass, before the layers run (ibid., "A faster implementation").
    """

    def __init__(self, masks: Sequence[LearnedMask], capacity: int) -> None:
        first = masks[0]
        self.heads, self.width, self.count = first.heads, first.width, len(masks)
        self.weight = torch.cat([mask.qkv.weight.detach() for mask in masks])
        biases = [mask.qkv.bias for mask in masks]
        self.bias = torch.cat([bias.detach() for bias in biases]) if first.options.bias else None
        self.shift = torch.stack([mask.shift.detach() for mask in masks])
        self.cache = KeyValues(capacity)

    def __call__(self, embed: Tensor) -> Tensor:
        """Return what the masks keep of tokens (B, T, C) after those of earlier calls: boolean (B, T, masks, C)."""
        batch, tokens, _ = embed.shape
        qkv = linear(embed, self.weight, self.bias).view(batch, tokens, self.count, 3, self.heads, -1)
        q, k, v = qkv.permute(3, 0, 2, 4, 1, 5).flatten(2, 3)
        k, v, mask = self.cache.append(k, v)
        out = sdpa(q, k, v, mask=mask).transpose(1, 2).reshape(batch, tokens, self.count, self.width)
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        return 0.5 * torch.cos(out + self.shift) + 0.5 >= 0.5


def joinable(modules: Sequence[nn.Module | None]) -> list[LearnedMask] | None:
    """Return the masks of sites if one `PrecomputedMasks` computes them as they would in evaluation; None if not."""
    masks = [module for module in modules if type(module) is LearnedMask]
    if not masks or len(masks) < len(modules):
        return None
    options, heads = masks[0].options, masks[0].heads
    if not masks[0].is_precomputed or options.harmonics > 1:
        return None
    alike = all(mask.options == options and mask.heads == heads and not mask.statistics for mask in masks)
    return masks if alike else None


def attention_of(
    qkv: Tensor, heads: int, *, mask: Tensor | None = None, causal: bool = False, cache: KeyValues | None = None
) -> Tensor:
    """Return multi-head self-attention from concatenated queries, keys and values: (B, T, 3 C) → (B, T, C).

    With a cache of earlier tokens, attention is causal, and there is no other mask.
    """
    batch, tokens, width = qkv.shape
    q, k, v = qkv.view(batch, tokens, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    if cache is not None:
        (k, v, mask), causal = cache.append(k, v), False
    if causal and mask is not None:
        mask, causal = with_causal(mask, tokens, tokens, qkv.device), False
    out = sdpa(q, k, v, mask=mask, causal=causal)
    return out.transpose(1, 2).reshape(batch, tokens, width // 3)


def entropy(values: Tensor) -> Tensor:
    """Return the mean of −M log2 M, 0 for an empty batch. The ε that keeps it finite at M = 0 is the source's, 1e-9."""
    positive = values.clamp_min(0.0)
    return (-positive * torch.log2(positive + 1e-9)).sum() / max(1, values.numel())


def straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """Return the value of one tensor with the gradient of another; NaN in either propagates.

    With value 1 where kept and 0 where dropped this is the source's M + (1 − M).detached() and M − M.detached(),
    but exactly 1 and 0: the source's own sum is only after rounding.
    """
    return value.detach() + (gradient - gradient.detach())


def _initialize(layer: nn.Linear) -> None:
    nn.init.normal_(layer.weight, std=INIT_STD)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
