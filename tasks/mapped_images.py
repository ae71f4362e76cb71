"""Training images and their label maps (`tasks.data.label_maps`), mirrored, augmented and cropped alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional

from tasks.data.label_maps import LabelMaps

Augment = Callable[[Tensor], Tensor]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Of random resized crops: share of the image, and width to height."""
MOVES = frozenset({"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "TranslateXRel", "TranslateYRel"})
"""What of RandAugment moves parts of an image to other places."""


class MappedImages:
    """Training images with their label maps, augmented alike.

    Args:
        maps: of the training images.
        size: side of the model's input, in pixels.
        flip: whether half of the images are mirrored.
        policy: of RandAugment, in timm's notation; None: none.
        augment: what `policy` does with an image.
    """

    def __init__(self, maps: LabelMaps, size: int, flip: bool, policy: str | None, augment: Augment | None) -> None:
        self.maps, self.size, self.flip, self.augment = maps, size, flip, augment
        self.follow = followed(policy) if policy is not None else None

    def batch(self, images: Sequence[Tensor], indices: Sequence[int]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Some images (H, W, C) uint8 with those numbers → a batch (B, C, size, size) uint8, their maps and crops."""
        views = [
            self.view(image.permute(2, 0, 1), self.maps[index]) for image, index in zip(images, indices, strict=True)
        ]
        pixels, maps, crops = (torch.stack(parts) for parts in zip(*views, strict=True))
        return pixels, (maps, crops)

    def view(self, image: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mirrored, then augmented, then cropped, in this order, as the authors do.

        Args:
            image: (C, H, W) uint8.
            labels: its map (2, K, rows, columns), of the whole image.

        Returns:
            image (C, size, size) uint8; map of the whole augmented image; left, top, right and bottom edge of the crop
            as shares of it.
        """
        if self.flip and torch.rand(()) < 0.5:
            image, labels = image.flip(-1), labels.flip(-1)
        if self.augment is not None and self.follow is not None:
            before = random.getstate(), np.random.get_state()
            image = self.augment(image)
            random.setstate(before[0])
            np.random.set_state(before[1])
            labels = self.follow(labels)
        top, left, height, width = RandomResizedCrop.get_params(image, list(SCALE), list(RATIO))
        rows, columns = image.shape[-2:]
        crop = torch.tensor([left / columns, top / rows, (left + width) / columns, (top + height) / rows])
        cut = functional.resized_crop(image, top, left, height, width, [self.size, self.size], antialias=True)
        return cut, labels, crop


def followed(policy: str) -> Callable[[Tensor], Tensor]:
    """What RandAugment's moves do with a label map, by the same draws as they do it with its image.

    Args:
        policy: in timm's notation.

    Returns:
        (2, K, rows, columns) → the same: each place has the labels of where it came from (the nearest place), and
        without labels, scores 0, what came in from outside.
    """
    from timm.data.auto_augment import rand_augment_transform

    # timm draws one of several ways to interpolate: it has to draw here, too.
    nearest = (Image.Resampling.NEAREST, Image.Resampling.NEAREST)
    draw = rand_augment_transform(policy, {"translate_const": 0, "img_mean": 0, "interpolation": nearest})
    for operation in draw.ops:
        if operation.name not in MOVES:
            operation.aug_fn = _unchanged

    def move(labels: Tensor) -> Tensor:
        rows, columns = labels.shape[-2:]
        numbered = np.arange(1, rows * columns + 1, dtype=np.int32).reshape(rows, columns)
        places = torch.from_numpy(np.array(draw(Image.fromarray(numbered)))).long()
        known = torch.cat([torch.zeros_like(labels[..., :1, 0]), labels.flatten(2)], dim=2)
        return known[..., places]

    return move


def _unchanged(image: Image.Image, *levels: float, **options: Any) -> Image.Image:
    return image
