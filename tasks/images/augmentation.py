"""Augmentation of training images: of single images by torchvision and timm, of batches by MixUp and CutMix."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, cast

import torch
from PIL.Image import Image, Resampling, fromarray, merge
from PIL.ImageOps import posterize
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torchvision.transforms import InterpolationMode, RandomResizedCrop, v2
from torchvision.transforms.v2 import functional

from dropbench.harness.errors import InputError
from dropbench.harness.seeding import alike_in_all_parts

POLICY = re.compile(r"rand(-(m|n|p|mstd|mmax|inc)\d+(\.\d+)?)+")


def random_augment(
    policy: str, size: int, mean: Tensor, interpolation: str | None = None
) -> Callable[[Tensor], Tensor]:
    """Return timm's RandAugment (Cubuk et al. 2020).

    Args:
        policy: in timm's notation, such as ``rand-m9-mstd0.5-inc1``.
        size: side of the images in pixels, which scales translations.
        mean: (3,) or (1,) mean color of the data, 0 to 1, which fills what a rotation or shift leaves empty.
        interpolation: a recipe's `train_interpolation`; timm then moves pixels bicubically, else by either at random.

    Returns:
        (3, H, W) uint8 → (3, H, W) uint8, drawing from the generators of Python and NumPy.

    Raises:
        InputError: timm has no such policy.
    """
    from timm.data.auto_augment import rand_augment_transform

    try:
        if not POLICY.fullmatch(policy):
            raise ValueError  # timm silently ignores unknown parts of a policy
        fill = tuple(round(255 * value) for value in mean.expand(3).tolist())
        moves = {"interpolation": Resampling.BICUBIC} if interpolation == "bicubic" else {}
        draw = rand_augment_transform(policy, {"translate_const": int(size * 0.45), "img_mean": fill, **moves})
    except (AssertionError, KeyError, ValueError):
        raise InputError(f"randaugment={policy}: expected timm's notation, such as rand-m9-mstd0.5-inc1") from None
    posterize_to_black(draw)

    def augment(image: Tensor) -> Tensor:
        pixels = image.permute(1, 2, 0)
        if pixels.is_contiguous():  # as an image that was just decoded
            pil_image = fromarray(pixels.numpy())
        else:
            # Merging planes in Pillow takes a quarter of the time of interleaving the channels in an array.
            pil_image = merge("RGB", [fromarray(plane) for plane in image.numpy()])
        return cast(Tensor, functional.pil_to_tensor(draw(pil_image)))

    return augment


def posterize_to_black(draw: Any) -> None:
    """Let timm's RandAugment posterize an image to 0 bits, that is to black, as it did with older Pillow releases.

    At a magnitude of 10, which one in 40 draws of the published policy reaches, timm keeps 0 bits. Pillow refuses that.
    """
    for operation in draw.ops:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize


def _posterize(image: Image, bits: int, **options: Any) -> Image:
    return posterize(image, bits) if bits > 0 else image.point(lambda value: 0)


def resized_crop(image: Tensor, size: int, interpolation: str | None) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Return a random resized crop (C, size, size) of an image (C, H, W), and its top, left, height and width.

    Its scale is 0.08 to 1, its aspect ratio 3/4 to 4/3 (Szegedy et al. 2015). `interpolation` is a recipe's
    `train_interpolation`.
    """
    top, left, height, width = RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
    chosen = random.choice(("bilinear", "bicubic")) if interpolation == "random" else interpolation or "bilinear"
    box = top, left, height, width
    return functional.resized_crop(image, *box, [size, size], InterpolationMode(chosen), antialias=True), box


def normalize(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return uint8 images (B, C, H, W) as float32, scaled to 0…1 and normalized by mean and deviation (C,)."""
    # In place, because a batch is larger than any cache: fresh memory for each operation takes twice as long.
    return pixels.float().div_(255.0).sub_(mean[:, None, None]).div_(std[:, None, None])


def erase_boxes(pixels: Tensor, probability: float) -> None:
    """Replace a box of some images (B, C, H, W) by noise, in place (Random Erasing, Zhong et al. 2020).

    The ranges of its area and aspect ratio are timm's.
    """
    erase = v2.RandomErasing(probability, (0.02, 1 / 3), (0.3, 1 / 0.3), value="random", inplace=True)
    for image in pixels:
        erase(image)


def random_crop_flip(pixels: Tensor, padding: int, flip: bool) -> Tensor:
    """Return random crops (B, C, H, W) of zero-padded images, half of them flipped.

    Args:
        pixels: (B, C, H, W).
        padding: pixels added on each side before an H × W crop.
        flip: whether to flip half of the images horizontally.
    """
    if not (padding or flip):
        return pixels
    batch, _, height, width = pixels.shape
    tops, lefts = torch.randint(2 * padding + 1, (2, batch)).tolist() if padding else ([0] * batch, [0] * batch)
    flips = (torch.rand(batch) < 0.5).tolist() if flip else [False] * batch
    padded = pad(pixels, [padding] * 4) if padding else pixels
    crops = torch.empty_like(pixels)
    # A loop over images: gathering the whole batch by index takes several times as long.
    for out, image, top, left, flipped in zip(crops, padded, tops, lefts, flips, strict=True):
        crop = image[:, top : top + height, left : left + width]
        out.copy_(crop.flip(-1) if flipped else crop)
    return crops


def mixup_cutmix(pixels: Tensor, labels: Tensor, classes: int, mixup: float, cutmix: float) -> tuple[Tensor, Tensor]:
    """Apply MixUp (Zhang et al. 2018) or CutMix (Yun et al. 2019) to a batch.

    Args:
        pixels: (B, C, H, W).
        labels: (B,).
        classes: number of classes.
        mixup: α of MixUp's Beta distribution; 0: no MixUp.
        cutmix: α of CutMix's Beta distribution; 0: no CutMix. If both are positive, one is drawn for each micro-batch.

    Returns:
        images (B, C, H, W), and class probabilities (B, classes).
    """
    if pixels.shape[0] == 1 or not (mixup or cutmix):
        return pixels, one_hot(labels, classes).to(pixels.dtype)
    transforms: list[Any] = [v2.MixUp(alpha=mixup, num_classes=classes)] if mixup else []
    transforms += [v2.CutMix(alpha=cutmix, num_classes=classes)] if cutmix else []
    with alike_in_all_parts():
        images, probabilities = v2.RandomChoice(transforms)(pixels, labels)
    return images, probabilities
