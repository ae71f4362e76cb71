"""VOLO (Yuan et al. 2021) from timm, in the published sizes and in smaller ones for small images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from timm.models.volo import VOLO
from torch import Tensor, nn

from dropbench.adapters.vision.image_size import choose_stride
from dropbench.adapters.vision.options import VoloOptions
from dropbench.harness.errors import InputError
from dropbench.harness.validation import model_options

STRIDES = (16, 8, 4)
"""Pixels between tokens in self-attention, half as many in outlook attention; 16 is the published stride."""
Box = tuple[int, int, int, int]
"""Top, left, bottom and right of a box in the token grid of self-attention; bottom and right are exclusive."""


class Volo(VOLO):
    """timm's VOLO with support for token labeling (Jiang et al. 2021).

    Without a box it computes what timm's does, also in training: class logits + ½ the maximum of the tokens' logits.
    """

    @property
    def token_grid(self) -> tuple[int, int]:
        """Rows and columns of the labeled tokens, which are those of self-attention."""
        rows, columns = self.pos_embed.shape[1:3]
        return rows, columns

    def forward(self, x: Tensor, box: Box | None = None) -> Any:
        """Classify images.

        Args:
            x: images (B, channels, rows, columns).
            box: for token labeling: the tokens of image i in the box are exchanged with those of image B - 1 - i;
                (0, 0, 0, 0) exchanges nothing.

        Returns:
            logits (B, classes); with a box, the class token's logits (B, classes) and each token's logits
            (B, rows · columns, classes), with exchanged tokens moved back to their own image.
        """
        if box is None:
            return super().forward(x)
        x = self.patch_embed(x).permute(0, 2, 3, 1)
        x = _exchange(x, box, self.pooling_scale)
        tokens = self.head_drop(self.norm(self.forward_cls(self.forward_tokens(x))))
        assert self.aux_head is not None
        logits = self.aux_head(tokens[:, 1:]).unflatten(1, self.token_grid)
        return self.head(tokens[:, 0]), _exchange(logits, box).flatten(1, 2)


def _exchange(x: Tensor, box: Box, scale: int = 1) -> Tensor:
    """Exchange the tokens in a box, scaled by `scale`, of (B, rows, columns, C) with those of the reversed batch."""
    top, left, bottom, right = (scale * edge for edge in box)
    if top == bottom or left == right:
        return x
    mixed = x.clone()
    mixed[:, top:bottom, left:right] = x.flip(0)[:, top:bottom, left:right]
    return mixed


def random_box(rows: int, columns: int) -> Box:
    """Draw a box for `Volo.forward`, in a token grid of the given size, from torch's default generator.

    Its share of the grid, before it is clipped at the edges, is uniform between 0 and 1.
    """
    side = torch.rand(()).sqrt().item()
    height, width = int(rows * side) // 2, int(columns * side) // 2
    row, column = int(torch.randint(rows, ())), int(torch.randint(columns, ()))
    return max(row - height, 0), max(column - width, 0), min(row + height, rows), min(column + width, columns)


NAMED: dict[str, dict[str, Any]] = {
    "volo-d1": {"layers": "4,4,8,2", "embed_dim": 384, "num_heads": 12},
    "volo-d2": {"layers": "6,4,10,4", "embed_dim": 512, "num_heads": 16},
    "volo-d3": {"layers": "8,8,16,4", "embed_dim": 512, "num_heads": 16},
    "volo-cifar": {"layers": "2,4", "embed_dim": 192, "num_heads": 6, "mlp_ratio": 2.0, "stem_dim": 16},
}


def build_volo(
    name: str, options: Mapping[str, Any], *, image_size: tuple[int, int], channels: int, classes: int
) -> nn.Module:
    """Build a VOLO with random weights; `options` are fields of `VoloOptions`, the rest is as in `build_t2t_vit`."""
    checked = model_options(VoloOptions, name, {**NAMED[name], **options})
    dim, heads = checked.embed_dim, checked.num_heads
    if heads % 2 or dim % heads:
        raise InputError(f"model {name}: num_heads={heads}: expected an even number that divides embed_dim={dim}")
    stride, grid = choose_stride(name, image_size, STRIDES, checked.stride)
    layers = [int(number) for number in checked.layers.split(",")]
    # timm's smallest stride is 8. Stride 4 uses timm's model for twice the image size, with a stem of stride 1, not 2.
    patch = max(4, stride // 2)
    model = Volo(
        layers,
        img_size=cast(int, (2 * patch * grid[0], 2 * patch * grid[1])),  # rows and columns, whatever its type says
        in_chans=channels,
        num_classes=classes,
        patch_size=patch,
        stem_hidden_dim=checked.stem_dim,
        embed_dims=[dim // 2] + [dim] * (len(layers) - 1),
        num_heads=[heads // 2] + [heads] * (len(layers) - 1),
        downsamples=(True, *[False] * (len(layers) - 1)),
        outlook_attention=(True, *[False] * (len(layers) - 1)),
        mlp_ratio=checked.mlp_ratio,
        drop_rate=checked.drop_rate,
        drop_path_rate=checked.drop_path_rate,
    )
    if stride == 4:
        cast(nn.Conv2d, model.patch_embed.conv[0]).stride = (1, 1)
    return model
