"""Embeddings of word features and of characters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

CHARACTERS = "characters"
"""The feature with shape (B, T, C): character ids, 0 for padding; all others have shape (B, T)."""
CHARACTER_DIM = 32
KERNEL = 3


class FeatureEmbedding(nn.Module):
    """The sum of the embeddings of all features; id 0 (padding) has a zero embedding."""

    def __init__(self, sizes: Mapping[str, int], dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                name: CharacterEmbedding(size, dim) if name == CHARACTERS else _table(size, dim)
                for name, size in sizes.items()
            }
        )

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        """Embed feature ids, (B, T) or (B, T, C) by feature → (B, T, dim)."""
        return torch.stack([table(features[name]) for name, table in self.tables.items()]).sum(dim=0)


class CharacterEmbedding(nn.Module):
    """A convolution over the characters of a word with max pooling (Ma and Hovy 2016, Section 2.1)."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, CHARACTER_DIM, padding_idx=0)
        self.convolution = nn.Conv1d(CHARACTER_DIM, dim, KERNEL, padding=KERNEL // 2)

    def forward(self, characters: Tensor) -> Tensor:
        """Embed characters (B, T, C) → (B, T, dim); a word without characters (padding) has a zero embedding."""
        batch, words, length = characters.shape
        real = characters.view(batch * words, length) != 0
        channels = self.convolution(self.table(characters).view(batch * words, length, -1).transpose(1, 2))
        channels = channels.masked_fill(~real[:, None, :], float("-inf")).amax(dim=2)
        out: Tensor = channels.masked_fill(~real.any(dim=1, keepdim=True), 0.0).view(batch, words, -1)
        return out


def _table(size: int, dim: int) -> nn.Embedding:
    table = nn.Embedding(size, dim, padding_idx=0)
    nn.init.normal_(table.weight, std=dim**-0.5)
    with torch.no_grad():
        table.weight[0].zero_()
    return table
