"""Heads of text encoders: one label per text, per word, or per pair of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

Head = Literal["text", "words", "pair"]
Pooling = Literal["mean", "max", "first"]


class TextEncoder(Protocol):
    """An nn.Module that encodes tokens as contextual vectors."""

    width: int

    def __call__(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Encode token ids (B, T) and ids by feature → vectors (B, T, width), and a mask of real tokens (B, T)."""
        ...


class TextClassifier(nn.Module):
    """An encoder, pooling over the real tokens, and a linear classifier."""

    def __init__(self, encoder: TextEncoder, classes: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(encoder.width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify texts: token ids (B, T) → logits (B, classes)."""
        logits: Tensor = self.classifier(self.dropout(pool(*self.encoder(tokens), self.pooling)))
        return logits


class Tagger(nn.Module):
    """An encoder, and a fully connected layer on the vector of each word (DropAttention, Section 5.2)."""

    def __init__(self, encoder: TextEncoder, classes: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(encoder.width, classes)

    def forward(
        self, tokens: Tensor, features: Mapping[str, Tensor] | None = None, first: Tensor | None = None
    ) -> Tensor:
        """Tag words.

        Args:
            tokens: token ids (B, T).
            features: ids by feature, one per token.
            first: position of each word's first token (B, W); None: each word is one token, and W is T.

        Returns:
            logits (B, W, classes).
        """
        hidden, _ = self.encoder(tokens, features)
        if first is not None:
            hidden = hidden.gather(1, first[..., None].expand(-1, -1, hidden.shape[-1]))
        logits: Tensor = self.classifier(self.dropout(hidden))
        return logits


class PairClassifier(nn.Module):
    """A shared encoder, and a 2-layer ReLU MLP on [u; v; |u − v|; u ⊙ v] (DropAttention, Section 5.3)."""

    def __init__(self, encoder: TextEncoder, classes: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        width = encoder.width
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(4 * width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, classes)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify pairs: token ids (B, 2, T) of premise and hypothesis → logits (B, classes)."""
        # Both texts are encoded in one pass, so that the encoder's sites are called once.
        pooled = pool(*self.encoder(tokens.flatten(0, 1)), self.pooling)
        u, v = pooled.unflatten(0, (-1, 2)).unbind(1)
        logits: Tensor = self.classifier(torch.cat([u, v, (u - v).abs(), u * v], dim=-1))
        return logits


def pool(hidden: Tensor, real: Tensor, pooling: Pooling) -> Tensor:
    """Pool vectors (B, T, dim) over the real tokens of a mask (B, T) → (B, dim)."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~real[..., None], float("-inf")).amax(dim=1)
    return (hidden * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)


def with_head(
    encoder: TextEncoder, head: Head, classes: int, pooling: Pooling, dropout: float
) -> TextClassifier | Tagger | PairClassifier:
    """Return an encoder with the head for labels per text, per word or per pair."""
    if head == "words":
        return Tagger(encoder, classes, dropout)
    return (TextClassifier if head == "text" else PairClassifier)(encoder, classes, pooling, dropout)
