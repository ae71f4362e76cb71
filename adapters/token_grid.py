"""How finely an image is cut into tokens: published at 224 pixels, natively at 32."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import InputError

LEAST = 8
"""Rows and columns of tokens that an image is given by itself, where a stride allows it."""


def choose_stride(
    name: str, image_size: tuple[int, int], strides: Sequence[int], asked: int | None = None
) -> tuple[int, tuple[int, int]]:
    """The stride of a model's tokens, and the grid that they form.

    Args:
        name: the model's, for errors.
        image_size: rows and columns of the input, in pixels.
        strides: what the model can do, in pixels from token to token.
        asked: the one to take; None: the largest that leaves 8 × 8 tokens or more, else the smallest. That is 16 at
            224 pixels (14 × 14 tokens), 8 at 64 and 4 at 32 (8 × 8 both).

    Returns:
        the stride in pixels, and rows and columns of tokens.

    Raises:
        InputError: the stride does not divide the image.
    """
    large = [stride for stride in sorted(strides, reverse=True) if min(image_size) // stride >= LEAST]
    stride = asked or (large[0] if large else min(strides))
    if image_size[0] % stride or image_size[1] % stride:
        raise InputError(
            f"model {name}: stride={stride} does not divide images of {image_size[0]}×{image_size[1]} pixels"
        )
    return stride, (image_size[0] // stride, image_size[1] // stride)
