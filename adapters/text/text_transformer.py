"""The text Transformer encoder of DropAttention (Section 3.1): pre-norm blocks on words and word features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dropbench.adapters.text.options import TextOptions
from dropbench.adapters.text.text_encoders import (
    CHARACTERS,
    FeatureEmbedding,
    Head,
    TextEncoder,
    bigram_buckets,
    with_head,
    word_embedding,
)
from dropbench.harness.attention.key_values import KeyValues
from dropbench.harness.errors import InputError
from dropbench.harness.models.attention import attend
from dropbench.harness.models.head_skipping import JointProjections
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.output import regularized_output
from dropbench.harness.validation import model_options


class Encoder(nn.Module):
    """A Transformer encoder (Eqs. 1 to 6 of DropAttention).

    Attributes:
        width: dimension of the output vectors.
        embedding: token embedding, which can be initialized with pre-trained vectors.
    """

    def __init__(self, options: TextOptions, vocabulary: int, max_length: int, features: Mapping[str, int]) -> None:
        super().__init__()
        self.width = options.dim
        word_dim = options.word_dim or options.dim
        self.embedding = word_embedding(vocabulary, word_dim)
        self.projection = nn.Identity() if word_dim == options.dim else nn.Linear(word_dim, options.dim, bias=False)
        self.features = FeatureEmbedding(features, options.dim) if features else None
        self.bigrams = None if options.bigrams is None else word_embedding(1 + options.bigrams, options.dim)
        if options.embedding_std is not None:
            with torch.no_grad():
                for embedding in filter(None, (self.embedding, self.bigrams)):
                    embedding.weight *= options.embedding_std * math.sqrt(embedding.embedding_dim)
        self.scale = math.sqrt(options.dim) if options.scale_embeddings else 1.0
        if options.positions == "learnt":
            self.positions = nn.Parameter(torch.randn(max_length, options.dim) * 0.02)
        else:
            table = sinusoids(max_length, options.dim) * (options.positions == "sinusoid")
            self.register_buffer("positions", table, persistent=False)
        self.dropout = nn.Dropout(options.dropout)
        width = options.convolution
        self.convolution = None if width is None else nn.Conv1d(options.dim, options.dim, width, padding=width // 2)
        self.layers = nn.ModuleList(EncoderLayer(options, layer) for layer in range(options.layers))
        self.norm = nn.LayerNorm(options.dim)

    def forward(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Encode token ids (B, T) and ids by feature → vectors (B, T, dim), and a mask of real tokens (B, T)."""
        real = tokens != 0
        hidden = self.projection(self.embedding(tokens))
        if self.features is not None:
            # Normalized to the scale of embeddings without features, to keep the weight of positions.
            hidden = (hidden + self.features(features or {})) / math.sqrt(1 + len(self.features.tables))
        if self.bigrams is not None:
            buckets = bigram_buckets(tokens, self.bigrams.num_embeddings - 1)
            hidden = (hidden + self.bigrams(buckets)) / math.sqrt(2)
        hidden = self.dropout(hidden * self.scale + self.positions[: tokens.shape[1]])
        if self.convolution is not None:
            words = (hidden * real[..., None]).transpose(1, 2)  # without the positions of padding
            added = self.convolution(words).transpose(1, 2).relu()
            # Not the module: as a site, it is called once.
            hidden = hidden + functional.dropout(added, self.dropout.p, self.training)
        mask = real[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.norm(hidden), real


class EncoderLayer(nn.Module):
    """A pre-norm layer: Z = H + MultiHead(norm(H)); H' = Z + MLP(norm(Z)) (Eqs. 5 and 6)."""

    def __init__(self, options: TextOptions, layer: int) -> None:
        super().__init__()
        name = f"encoder.layers.{layer}.attention"
        site = Site(name, "encoder-self", layer, options.layers, options.heads, width=options.dim)
        self.attention = SelfAttention(site, options.dim)
        self.attention_norm = nn.LayerNorm(options.dim)
        self.feedforward_norm = nn.LayerNorm(options.dim)
        self.feedforward = FeedForward(options, layer)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer to (B, T, dim); the mask, broadcastable to (B, heads, T, T), is True for allowed keys."""
        hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), mask))
        return cast(Tensor, hidden + self.dropout(self.feedforward(self.feedforward_norm(hidden), mask)))


class FeedForward(nn.Module):
    """A feed-forward network (linear, ReLU, linear) whose output is a site."""

    def __init__(self, options: TextOptions, layer: int) -> None:
        super().__init__()
        dim, width, dropout = options.dim, options.feedforward, options.dropout
        self.layers = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, dim))
        name = f"encoder.layers.{layer}.feedforward"
        self.site = Site(name, "feed-forward", layer, options.layers, options.heads, width=dim)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map (B, T, dim) → (B, T, dim)."""
        return regularized_output(self.layers(hidden), self.site, training=self.training, mask=mask)


class SelfAttention(nn.Module):
    """Multi-head self-attention (Eqs. 1 to 4) through `attend`; with `always_on`, regularized in evaluation, too."""

    def __init__(
        self, site: Site, dim: int, *, bias: bool = True, causal: bool = False, always_on: bool = False
    ) -> None:
        super().__init__()
        self.site, self.causal, self.always_on = site, causal, always_on
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(self, hidden: Tensor, mask: Tensor | None = None, cache: KeyValues | None = None) -> Tensor:
        """Attend within (B, T, dim) → (B, T, dim); with a cache, to the tokens before them, too, without `mask`."""
        training = self.training or self.always_on
        heads = JointProjections(self.site, self.qkv, self.out, training=training)
        (q, k, v), causal = heads.split(hidden), self.causal
        if cache is not None:
            (k, v, mask), causal = cache.append(k, v), False
        return heads.merge(attend(q, k, v, self.site, training=training, mask=mask, causal=causal))


def sinusoids(length: int, dim: int) -> Tensor:
    """Return sinusoidal positions (length, dim) with sines and cosines interleaved (Vaswani et al. 2017, 3.5)."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles[:, : dim // 2].cos()
    return table


@with_head
def build_text_transformer(
    name: str, options: Mapping[str, Any], *, vocabulary: int, max_length: int, features: Mapping[str, int] = {}
) -> tuple[TextEncoder, Head]:
    """Build the model with random weights: an `Encoder` with the head that `with_head` describes.

    `options` are fields of `TextOptions`. `vocabulary` is the number of token ids, 0 for padding, and `max_length` the
    maximum number of tokens of an input. `features` has the number of ids of each word feature, by name.
    """
    checked = model_options(TextOptions, name, options)
    if checked.dim % checked.heads:
        raise InputError(f"model {name}: heads={checked.heads} does not divide dim={checked.dim}")
    if checked.linear_characters is not None:
        if CHARACTERS not in (features or {}) or checked.linear_bigrams is None:
            raise InputError(f"model {name}: linear_characters needs linear_bigrams and features=characters")
        features = {name: size for name, size in features.items() if name != CHARACTERS}
    head = Head(checked.pooling, checked.dropout, checked.linear_bigrams, checked.linear_characters)
    return Encoder(checked, vocabulary, max_length, features), head
