"""A small model in float64, for regularizers that choose what they drop by further passes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.passes import Passes
from dropbench.harness.regularizers.schedules import constant

BATCH, TOKENS, HEADS, SIZE, CLASSES = 3, 10, 2, 4, 3


class OneLayer(nn.Module):
    """One layer of attention, the mean over tokens, and a classifier."""

    def __init__(self, regularizer: Regularizer, lengths: list[int]) -> None:
        super().__init__()
        self.site = Site("attention", "encoder-self", 0, 1, HEADS, width=HEADS * SIZE)
        regularizer.bind_to(self.site, constant)
        self.qkv = nn.Linear(HEADS * SIZE, 3 * HEADS * SIZE)
        self.head = nn.Linear(HEADS * SIZE, CLASSES)
        self.mask = torch.arange(TOKENS) < torch.tensor(lengths)[:, None, None, None]
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.7)
        self.site.module = self.own = regularizer.site_module(self.site)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).view(len(x), TOKENS, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        mask = self.mask.repeat(len(x) // BATCH, 1, 1, 1)
        out = attend(*self.split(x), self.site, training=self.training, mask=mask)
        logits: Tensor = self.head(out.transpose(1, 2).flatten(2).mean(1))
        return logits


def make(regularizer: Regularizer, lengths: list[int] | None = None) -> tuple[OneLayer, Tensor, Tensor]:
    torch.manual_seed(0)
    model = OneLayer(regularizer, lengths or [TOKENS, 7, 4]).double()
    return model, torch.randn(BATCH, TOKENS, HEADS * SIZE, dtype=torch.float64), torch.tensor([0, 2, 1])


def passes_of(model: OneLayer, x: Tensor, labels: Tensor, epoch: int = 1) -> Passes:
    def forward(batch: Any) -> tuple[Tensor, Tensor]:
        logits = model(batch)
        return cross_entropy(logits, labels.repeat(len(batch) // BATCH)), logits

    return Passes(forward, x, [model.site], 0.0, epoch)


def plain_weights(model: OneLayer, x: Tensor) -> Tensor:
    """Return the attention weights without drops."""
    q, k, _ = model.split(x)
    powers = (q @ k.mT / math.sqrt(SIZE)).exp() * model.mask
    return powers / powers.sum(-1, keepdim=True)
