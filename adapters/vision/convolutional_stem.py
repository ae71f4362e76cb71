"""The stem of convolutions of the Compact Convolutional Transformer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn


class ConvolutionalStem(nn.Module):
    """A replacement of timm's `PatchEmbed`: convolutions with pooling, each of which halves the image.

    It is the stem of the Compact Convolutional Transformer (Hassani et al. 2021, Section 3.3).

    Small sets have too few images to learn locality from patches alone. The number of convolutions is log2 of the patch
    size; each but the last has half of the next one's channels.

    Attributes:
        grid_size: rows and columns of the tokens.
        num_patches: number of tokens.
    """

    def __init__(
        self, img_size: tuple[int, int], patch_size: int, in_chans: int, embed_dim: int, bias: bool = False, **_: Any
    ) -> None:
        super().__init__()
        halvings = patch_size.bit_length() - 1
        if patch_size != 2**halvings or halvings == 0:
            raise ValueError(f"patch_size={patch_size}: expected a power of 2 for stem=convolutional")
        self.grid_size = (img_size[0] // patch_size, img_size[1] // patch_size)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        widths = [in_chans, *(max(1, embed_dim >> shift) for shift in reversed(range(halvings)))]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(convolution.weight)
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        # On CPUs, the layers take two thirds of the time with channels last.
        self.layers = cast(Any, nn.Sequential(*layers)).to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, in_chans, rows, columns) → tokens (B, num_patches, embed_dim)."""
        grid = self.layers(images.contiguous(memory_format=torch.channels_last))
        return cast(Tensor, grid.flatten(2).transpose(1, 2))
