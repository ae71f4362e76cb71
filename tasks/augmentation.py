"""Augmentation of training images: single images by torchvision and timm, batches by mixing them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from PIL.Image import Image, fromarray, merge
from PIL.ImageOps import posterize
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from harness.errors import InputError

POLICY = re.compile(r"rand(-(m|n|p|mstd|mmax|inc)\d+(\.\d+)?)+")
GREY = 128
"""What comes in from outside of an image that is turned or moved, of 255."""


def random_augment(policy: str, size: int) -> Callable[[Tensor], Tensor]:
    """RandAugment (Cubuk et al. 2020) as timm has it.

    Args:
        policy: in timm's notation: ``rand-m9-mstd0.5-inc1``.
        size: side of the images in pixels, which translations are a share of.

    Returns:
        (3, H, W) uint8 → the same, drawing from the generators of Python and NumPy.

    Raises:
        InputError: timm knows no such policy.
    """
    from timm.data.auto_augment import rand_augment_transform

    try:
        if not POLICY.fullmatch(policy):
            raise ValueError  # timm passes over what it does not know
        draw = rand_augment_transform(policy, {"translate_const": int(size * 0.45), "img_mean": (GREY,) * 3})
    except (AssertionError, KeyError, ValueError):
        raise InputError(f"randaugment={policy}: expected timm's notation, such as rand-m9-mstd0.5-inc1") from None
    posterize_to_black(draw)

    def augmented(image: Tensor) -> Tensor:
        # Plane by plane: Pillow gathers the channels of pixels in a quarter of the time that an array takes for it.
        opened = merge("RGB", [fromarray(plane) for plane in image.numpy()])
        changed: Tensor = functional.pil_to_tensor(draw(opened))
        return changed

    return augmented


def posterize_to_black(draw: Any) -> None:
    """Let timm's RandAugment posterize an image to no bits at all: it gets black, as it did with Pillow of old.

    At a magnitude of 10, which one of 40 draws of the published policy reaches, timm keeps 0 bits; Pillow refuses that.
    """
    for operation in draw.ops:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize


def _posterize(image: Image, bits: int, **options: Any) -> Image:
    return posterize(image, bits) if bits > 0 else image.point(lambda value: 0)


@cache
def resized_crop(size: int) -> Callable[[Tensor], Tensor]:
    """Random resized crops (scale 0.08 to 1, Szegedy et al. 2015): (C, H, W) uint8 → (C, size, size) uint8."""
    crop: Callable[[Tensor], Tensor] = v2.RandomResizedCrop(size, antialias=True)
    return crop


def random_erasing(share: float) -> Callable[[Tensor], Tensor]:
    """Random Erasing (Zhong et al. 2020): in so many images, a rectangle of noise; (C, H, W), normalised, in place."""
    erase: Callable[[Tensor], Tensor] = v2.RandomErasing(share, value="random", inplace=True)
    return erase


def normalised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(B, C, H, W) uint8 → float32 with that mean and deviation (C,) of values between 0 and 1 taken out."""
    # In place, since a batch is larger than any cache: fresh memory for each operation takes twice as long.
    return pixels.float().div_(255.0).sub_(mean[:, None, None]).div_(std[:, None, None])


def moved_and_mirrored(pixels: Tensor, padding: int, flip: bool) -> Tensor:
    """Random crops of zero-padded images, and mirror images of half of them.

    Args:
        pixels: (B, C, H, W).
        padding: pixels added on each side before an H × W crop.
        flip: whether to mirror.

    Returns:
        (B, C, H, W).
    """
    if not (padding or flip):
        return pixels
    batch, _, height, width = pixels.shape
    tops, lefts = torch.randint(2 * padding + 1, (2, batch)).tolist() if padding else ([0] * batch, [0] * batch)
    mirrored = (torch.rand(batch) < 0.5).tolist() if flip else [False] * batch
    padded = pad(pixels, [padding] * 4) if padding else pixels
    moved = torch.empty_like(pixels)
    # One by one: gathering all at once by their places takes several times as long.
    for place, image, top, left, mirror in zip(moved, padded, tops, lefts, mirrored, strict=True):
        cut = image[:, top : top + height, left : left + width]
        place.copy_(cut.flip(-1) if mirror else cut)
    return moved


def mixed(pixels: Tensor, labels: Tensor, classes: int, mixup: float, cutmix: float) -> tuple[Tensor, Tensor]:
    """Each image mixed with another of its batch (Zhang et al. 2018), or with a part of it (CutMix, Yun et al. 2019).

    Args:
        pixels: (B, C, H, W), changed in place.
        labels: (B,).
        classes: how many there are.
        mixup: α of the Beta distribution that shares are drawn from; 0: none.
        cutmix: the same of CutMix; where both are above 0, each batch draws one of them.

    Returns:
        images, and the share of each class (B, classes).
    """
    if pixels.shape[0] == 1 or not (mixup or cutmix):
        return pixels, one_hot(labels, classes).to(pixels.dtype)
    draws: list[Any] = [_MixUp(alpha=mixup, num_classes=classes)] if mixup else []
    draws += [_CutMix(alpha=cutmix, num_classes=classes)] if cutmix else []
    images, shares = v2.RandomChoice(draws)(pixels, labels)
    return images, shares


class _MixUp(v2.MixUp):  # type: ignore[misc]
    """torchvision's, but without three copies of the batch."""

    def transform(self, inpt: Tensor, params: dict[str, Any]) -> Tensor:
        if inpt is params["labels"]:
            mixed: Tensor = super().transform(inpt, params)
            return mixed
        share, first, other = params["lam"], inpt[-1].clone(), torch.empty_like(inpt[0])
        for number in range(len(inpt) - 1, -1, -1):
            torch.mul(inpt[number - 1] if number else first, 1.0 - share, out=other)
            inpt[number].mul_(share).add_(other)
        return inpt


class _CutMix(v2.CutMix):  # type: ignore[misc]
    """torchvision's, but without two copies of the batch."""

    def transform(self, inpt: Tensor, params: dict[str, Any]) -> Tensor:
        if inpt is params["labels"]:
            mixed: Tensor = super().transform(inpt, params)
            return mixed
        left, top, right, bottom = params["box"]
        part = inpt[..., top:bottom, left:right]
        part.copy_(part.roll(1, 0))
        return inpt
