"""The stride of image tokens, which depends on the size of the images, and the check of that size."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dropbench.harness.errors import InputError

MIN_TOKENS = 8
"""Minimum rows and columns of tokens for the default stride."""


def choose_stride(
    name: str, image_size: tuple[int, int], strides: Sequence[int], requested: int | None = None
) -> tuple[int, tuple[int, int]]:
    """Return the stride of a model's tokens, in pixels, and rows and columns of the token grid.

    It is the `requested` one. Without one it is the largest of `strides` with at least 8 × 8 tokens, or else the
    smallest: 16 at 224 pixels (14 × 14 tokens), 8 at 64 pixels and 4 at 32 pixels (both 8 × 8).

    Raises:
        InputError: the stride does not divide the image, whose size is rows and columns in pixels.
    """
    large = [stride for stride in sorted(strides, reverse=True) if min(image_size) // stride >= MIN_TOKENS]
    stride = requested or (large[0] if large else min(strides))
    if image_size[0] % stride or image_size[1] % stride:
        size = "×".join(map(str, image_size))
        raise InputError(f"model {name}: stride={stride} does not divide images of {size} pixels")
    return stride, (image_size[0] // stride, image_size[1] // stride)


def check_image_size(images: Tensor, size: tuple[int, int]) -> None:
    """Raise InputError if images (B, channels, rows, columns) have another size than the model was built for."""
    if images.shape[-2:] != size:
        actual, expected = ("×".join(map(str, sides)) for sides in (images.shape[-2:], size))
        raise InputError(f"images of {actual} pixels: the model was built for {expected}")
