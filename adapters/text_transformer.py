"""The text Transformer encoder of DropAttention (Section 3.1): pre-norm blocks, pooled, one linear classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from harness.attention import attend
from harness.errors import InputError
from harness.feedforward import regularized_output
from harness.site import Site
from harness.validation import input_error


class TextOptions(BaseModel):
    """Shape of the encoder; the source's appendix with its own is not public."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(default=2, ge=1)
    dim: int = Field(default=128, ge=1)
    heads: int = Field(default=4, ge=1)
    feedforward: int = Field(default=256, ge=1)
    dropout: float = Field(default=0.3, ge=0, lt=1, description="on embeddings, sublayer outputs and pooled features")
    pooling: Literal["mean", "max"] = "max"
    positions: Literal["sinusoid", "learnt", "none"] = "sinusoid"


class Encoder(nn.Module):
    """Token ids to contextual vectors: Eqs. 1 to 6 of DropAttention."""

    def __init__(self, options: TextOptions, vocabulary: int, max_length: int, padding: int = 0) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = nn.Embedding(vocabulary, options.dim, padding_idx=padding)
        nn.init.normal_(self.embedding.weight, std=options.dim**-0.5)
        with torch.no_grad():
            self.embedding.weight[padding].zero_()
        self.scale = math.sqrt(options.dim)
        if options.positions == "learnt":
            self.positions = nn.Parameter(torch.randn(max_length, options.dim) * 0.02)
        else:
            table = sinusoids(max_length, options.dim) * (options.positions == "sinusoid")
            self.register_buffer("positions", table, persistent=False)
        self.dropout = nn.Dropout(options.dropout)
        self.layers = nn.ModuleList(EncoderLayer(options, layer) for layer in range(options.layers))
        self.norm = nn.LayerNorm(options.dim)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) token ids → vectors (B, T, dim) and which tokens are real (B, T)."""
        real = tokens != self.padding
        hidden = self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]])
        mask = real[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.norm(hidden), real


class EncoderLayer(nn.Module):
    """Z = H + MultiHead(norm(H)); H' = Z + MLP(norm(Z)) (Eqs. 5 and 6)."""

    def __init__(self, options: TextOptions, layer: int) -> None:
        super().__init__()
        self.attention = SelfAttention(options, layer)
        self.attention_norm = nn.LayerNorm(options.dim)
        self.feedforward_norm = nn.LayerNorm(options.dim)
        self.feedforward = FeedForward(options, layer)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, T, dim), and a mask broadcastable to (B, heads, T, T), True where a token may be attended to."""
        hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), mask))
        out: Tensor = hidden + self.dropout(self.feedforward(self.feedforward_norm(hidden), mask))
        return out


class FeedForward(nn.Module):
    """Linear, ReLU, linear; its output is a site of its own."""

    def __init__(self, options: TextOptions, layer: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(options.dim, options.feedforward),
            nn.ReLU(),
            nn.Dropout(options.dropout),
            nn.Linear(options.feedforward, options.dim),
        )
        name = f"encoder.layers.{layer}.feedforward"
        self.site = Site(name, "feed-forward", layer, options.layers, options.heads, width=options.dim)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, T, dim) → (B, T, dim)."""
        return regularized_output(self.layers(hidden), self.site, training=self.training, mask=mask)


class SelfAttention(nn.Module):
    """Multi-head self-attention (Eqs. 1 to 4) through `attend`."""

    def __init__(self, options: TextOptions, layer: int) -> None:
        super().__init__()
        self.heads = options.heads
        self.qkv = nn.Linear(options.dim, 3 * options.dim)
        self.out = nn.Linear(options.dim, options.dim)
        name = f"encoder.layers.{layer}.attention"
        self.site = Site(name, "encoder-self", layer, options.layers, options.heads, width=options.dim)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, T, dim) → (B, T, dim)."""
        batch, length, dim = hidden.shape
        q, k, v = self.qkv(hidden).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        out = attend(q, k, v, self.site, training=self.training, mask=mask)
        projected: Tensor = self.out(out.transpose(1, 2).reshape(batch, length, dim))
        return projected


class TextClassifier(nn.Module):
    """Encoder, pooling over the real tokens, linear classifier."""

    def __init__(self, options: TextOptions, vocabulary: int, classes: int, max_length: int) -> None:
        super().__init__()
        self.encoder = Encoder(options, vocabulary, max_length)
        self.pooling = options.pooling
        self.dropout = nn.Dropout(options.dropout)
        self.classifier = nn.Linear(options.dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) token ids, 0 for padding → logits (B, classes)."""
        hidden, real = self.encoder(tokens)
        if self.pooling == "max":
            pooled = hidden.masked_fill(~real[..., None], float("-inf")).amax(dim=1)
        else:
            pooled = (hidden * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits


def sinusoids(length: int, dim: int) -> Tensor:
    """Sinusoidal positions (length, dim), sines beside cosines (Vaswani et al. 2017, Section 3.5)."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles[:, : dim // 2].cos()
    return table


def build_text_classifier(
    name: str, options: Mapping[str, Any], *, vocabulary: int, classes: int, max_length: int
) -> nn.Module:
    """The classifier with random weights.

    Args:
        name: as registered in MODELS.
        options: fields of `TextOptions` that differ from the defaults.
        vocabulary: number of token ids, 0 being padding.
        classes: number of outputs.
        max_length: longest input, in tokens.

    Returns:
        (B, T) token ids → logits (B, classes).

    Raises:
        InputError: an unknown or impossible option.
    """
    try:
        checked = TextOptions(**options)
    except ValidationError as error:
        raise input_error(error, f"model {name}", f"option of model {name}", TextOptions.model_fields) from None
    if checked.dim % checked.heads:
        raise InputError(f"model {name}: heads={checked.heads} does not divide dim={checked.dim}")
    return TextClassifier(checked, vocabulary, classes, max_length)
