"""T2T-ViT (Yuan et al. 2021): a Vision Transformer with tokens from the T2T module.

Parameters have the names of the authors' code (yitu-opensource/T2T-ViT), so that its checkpoints can be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from timm.layers.drop import DropPath
from timm.layers.mlp import Mlp
from torch import Tensor, nn

from dropbench.adapters.vision.image_size import check_image_size, choose_stride
from dropbench.adapters.vision.options import T2TOptions
from dropbench.adapters.vision.t2t_module import SOFT_SPLITS, TokensToTokens
from dropbench.harness.errors import InputError
from dropbench.harness.models.attention import attend
from dropbench.harness.models.head_skipping import JointProjections, may_leave_out_queries
from dropbench.harness.regularizers.base import Site
from dropbench.harness.validation import model_options

INIT_STD = 0.02


class T2TViT(nn.Module):
    """The T2T-ViT image classifier."""

    def __init__(
        self, options: T2TOptions, stride: int, image_size: tuple[int, int], channels: int, classes: int
    ) -> None:
        super().__init__()
        self.image_size, dim = image_size, options.embed_dim
        self.tokens_to_token = TokensToTokens(options.tokens, stride, image_size, channels, options.token_dim, dim)
        self.grid = self.tokens_to_token.grids[-1]
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.pos_embed = nn.Parameter(positions(1 + self.grid[0] * self.grid[1], dim)[None], requires_grad=False)
        self.pos_drop = nn.Dropout(options.drop_rate)
        self.blocks = nn.ModuleList(Block(options, layer, self.grid) for layer in range(options.depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        nn.init.trunc_normal_(self.cls_token, std=INIT_STD)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=INIT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (B, channels, rows, columns) → logits (B, classes); raises as `check_image_size`."""
        check_image_size(images, self.image_size)
        tokens = self.tokens_to_token(images)
        x = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        x = self.pos_drop(x + self.pos_embed)
        for block in self.blocks:
            x = block(x)
        return cast(Tensor, self.head(self.norm(x)[:, 0]))


class Block(nn.Module):
    """A pre-norm block: X' = X + attention(norm(X)); X'' = X' + MLP(norm(X')).

    In training, a block with `only_class_token` computes only the class token, unless anything reads the others.
    """

    only_class_token = False

    def __init__(self, options: T2TOptions, layer: int, grid: tuple[int, int]) -> None:
        super().__init__()
        dim, name = options.embed_dim, f"blocks.{layer}.attn"
        site = Site(name, "encoder-self", layer, options.depth, options.num_heads, grid, num_prefix_tokens=1, width=dim)
        self.norm1 = nn.LayerNorm(dim)
        self.attn = SelfAttention(site, dim, options.drop_rate)
        self.drop_path = DropPath(options.drop_path_rate * layer / max(1, options.depth - 1))
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * options.mlp_ratio), drop=options.drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 1 + N, dim) → (B, 1 + N, dim), or the class token (B, 1, dim)."""
        first = self.only_class_token and self.training and may_leave_out_queries(self.attn.site, self, self.attn.qkv)
        attended = self.drop_path(self.attn(self.norm1(x), first=first))
        x = attended + (x[:, :1] if first else x)
        return cast(Tensor, x + self.drop_path(self.mlp(self.norm2(x))))


class SelfAttention(nn.Module):
    """Multi-head self-attention through `attend`; the projections of q, k and v have no bias."""

    def __init__(self, site: Site, dim: int, dropout: float) -> None:
        super().__init__()
        self.site = site
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, first: bool = False) -> Tensor:
        """Attend within (B, 1 + N, dim) → (B, 1 + N, dim); with `first`, from the first token alone → (B, 1, dim)."""
        heads = JointProjections(self.site, self.qkv, self.proj, training=self.training)
        q, k, v = heads.split_first(x) if first else heads.split(x)
        return cast(Tensor, self.proj_drop(heads.merge(attend(q, k, v, self.site, training=self.training))))


def positions(count: int, dim: int) -> Tensor:
    """Return sinusoidal positions (count, dim), sines and cosines interleaved, computed in float64, as float32."""
    channel = torch.arange(dim, dtype=torch.float64)
    angles = torch.arange(count, dtype=torch.float64)[:, None] / 10000 ** (2 * (channel // 2) / dim)
    return torch.where(channel % 2 == 0, angles.sin(), angles.cos()).float()


PUBLISHED: dict[str, dict[str, Any]] = {
    "t2t-vit-14": {"embed_dim": 384, "depth": 14, "num_heads": 6},
    "t2t-vit-19": {"embed_dim": 448, "depth": 19, "num_heads": 7},
    "t2t-vit-24": {"embed_dim": 512, "depth": 24, "num_heads": 8},
}
NAMED = {
    **PUBLISHED,
    **{f"{name}-performer": {**shape, "tokens": "performer"} for name, shape in PUBLISHED.items()},
    "t2t-vit-cifar": {"embed_dim": 192, "depth": 6, "num_heads": 6, "mlp_ratio": 2.0, "token_dim": 32},
    "t2t-vit-digits": {"embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2.0, "token_dim": 16},
}


def build_t2t_vit(
    name: str, options: Mapping[str, Any], *, image_size: tuple[int, int], channels: int, classes: int
) -> nn.Module:
    """Build a T2T-ViT with random weights; `options` are fields of `T2TOptions`.

    For the default `stride` see `choose_stride`. The rest is as in
    `dropbench.adapters.libraries.timm_models.build_vit`.
    """
    checked = model_options(T2TOptions, name, {**NAMED[name], **options})
    if checked.embed_dim % checked.num_heads:
        raise InputError(f"model {name}: num_heads={checked.num_heads} does not divide embed_dim={checked.embed_dim}")
    stride, _ = choose_stride(name, image_size, list(SOFT_SPLITS), checked.stride)
    model = T2TViT(checked, stride, image_size, channels, classes)
    cast(Block, model.blocks[-1]).only_class_token = True
    return model
