"""The T2T module of T2T-ViT (Yuan et al. 2021, Section 3.1): three soft splits with attention in between."""

from __future__ import annotations

import math
from typing import cast

import torch
from timm.layers.mlp import Mlp
from torch import Tensor, nn
from torch.nn.functional import unfold

from dropbench.adapters.vision.options import TokenKind
from dropbench.harness.attention.reference.sdpa import without_autocast
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site

SOFT_SPLITS: dict[int, tuple[tuple[int, int, int], ...]] = {
    16: ((7, 4, 2), (3, 2, 1), (3, 2, 1)),
    8: ((3, 2, 1), (3, 2, 1), (3, 2, 1)),
    4: ((3, 2, 1), (3, 2, 1), (3, 1, 1)),
    2: ((3, 2, 1), (3, 1, 1), (3, 1, 1)),
}
"""Kernel, stride and padding of the three soft splits, by the stride of tokens in pixels; 16 is the published one."""
PERFORMER_DROPOUT = 0.1
"""Dropout on the performer's two outputs, which the published models have for any dropout rate."""


class TokensToTokens(nn.Module):
    """The T2T module: three soft splits with attention in between, and a projection.

    A soft split makes a token of each k × k neighborhood, and neighborhoods overlap. Attention is over all tokens, and
    its output is reshaped to an image for the next split.
    """

    def __init__(
        self, kind: TokenKind, stride: int, image_size: tuple[int, int], channels: int, token_dim: int, embed_dim: int
    ) -> None:
        super().__init__()
        self.splits = SOFT_SPLITS[stride]
        self.grids = _grids(image_size, self.splits)
        widths = [channels * self.splits[0][0] ** 2, token_dim * self.splits[1][0] ** 2]
        layers: list[nn.Module] = []
        for index, width in enumerate(widths):
            if kind == "performer":
                layers.append(TokenPerformer(width, token_dim))
            else:
                name = f"tokens_to_token.attention{index + 1}.attn"
                site = Site(name, "token", index, len(widths), 1, self.grids[index], width=token_dim)
                layers.append(TokenTransformer(width, token_dim, site))
        self.attention1, self.attention2 = layers
        self.project = nn.Linear(token_dim * self.splits[2][0] ** 2, embed_dim)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, channels, rows, columns) → tokens (B, N, embed_dim)."""
        x = images
        for split, layer, grid in zip(self.splits, (self.attention1, self.attention2), self.grids, strict=False):
            x = layer(soft_split(x, split)).transpose(1, 2).unflatten(2, grid)
        return cast(Tensor, self.project(soft_split(x, self.splits[2])))


def soft_split(images: Tensor, split: tuple[int, int, int]) -> Tensor:
    """Map (B, C, rows, columns) → a token per neighborhood (B, N, C·k²); `split` is (kernel, stride, padding)."""
    kernel, stride, padding = split
    return unfold(images, kernel, padding=padding, stride=stride).transpose(1, 2)


def _grids(size: tuple[int, int], splits: tuple[tuple[int, int, int], ...]) -> list[tuple[int, int]]:
    """Return rows and columns of tokens after each split."""
    grids = []
    for kernel, stride, padding in splits:
        rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in size)
        size = (rows, columns)
        grids.append(size)
    return grids


class TokenTransformer(nn.Module):
    """A block from the width of a split to that of a token: T' = attention(norm(T)); T'' = T' + MLP(norm(T'))."""

    def __init__(self, width: int, dim: int, site: Site) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = TokenAttention(width, dim, site)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, width) → (B, N, dim)."""
        x = self.attn(self.norm1(x))
        return cast(Tensor, x + self.mlp(self.norm2(x)))


class TokenAttention(nn.Module):
    """Attention with one head; the values replace the residual, because input and output differ in width."""

    def __init__(self, width: int, dim: int, site: Site) -> None:
        super().__init__()
        self.site = site
        # The published models scale by the width of the input instead of that of the keys.
        self.scale = width**-0.5
        self.qkv = nn.Linear(width, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, width) → (B, N, dim)."""
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        out = attend(q, k, v, self.site, training=self.training, scale=self.scale)
        return cast(Tensor, v[:, 0] + self.proj(out[:, 0]))


class TokenPerformer(nn.Module):
    """A block with attention linear in the number of tokens (Choromanski et al. 2021, 2.3): no weights, so no site."""

    w: Tensor

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.kqv = nn.Linear(width, 3 * dim)
        # Fixed orthogonal directions of the random features, of norm √m.
        directions = nn.init.orthogonal_(torch.empty(dim // 2, dim)) * math.sqrt(dim // 2)
        self.w = nn.Parameter(directions, requires_grad=False)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(PERFORMER_DROPOUT)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.Dropout(PERFORMER_DROPOUT))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, width) → (B, N, dim)."""
        k, q, v = self.kqv(self.norm1(x)).chunk(3, dim=-1)
        x = v + self.dropout(self.proj(self.attend_linearly(q, k, v).to(v.dtype)))
        return cast(Tensor, x + self.mlp(self.norm2(x)))

    def attend_linearly(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with q, k, v (B, N, dim) → (B, N, dim), in float32 or better: the features overflow in float16."""
        dtype = torch.promote_types(v.dtype, torch.float32)
        with without_autocast(v.device.type):
            queries, keys = self.features(q.to(dtype)), self.features(k.to(dtype))
            normalizer = queries @ keys.sum(dim=1)[..., None]
            return queries @ (keys.transpose(1, 2) @ v.to(dtype)) / (normalizer + 1e-8)

    def features(self, x: Tensor) -> Tensor:
        """Return positive random features (B, N, m), exp(w·x − |x|²/2) / √m, with expected products exp(q·k)."""
        w = self.w.to(x.dtype)
        half = x.square().sum(dim=-1, keepdim=True) / 2
        return (x @ w.T - half).exp() / math.sqrt(len(w))
