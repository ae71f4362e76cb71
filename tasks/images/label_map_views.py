"""Joint augmentation of training images and their label maps (`tasks.data.images.label_maps`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional

from tasks.data.images.label_maps import LabelMaps

Transform = Callable[[Tensor], Tensor]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Of random resized crops: share of the image's area, and aspect ratio."""
GEOMETRIC_OPS = frozenset({"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "TranslateXRel", "TranslateYRel"})
"""RandAugment's operations that move pixels."""


class LabelMapViews:
    """Augmented views of training images together with their label maps.

    Args:
        maps: label maps of the training images.
        size: side of the model's input, in pixels.
        flip: whether half of the images are flipped.
        policy: RandAugment in timm's notation; None: no RandAugment.
        augment: the transform of `policy`.
    """

    def __init__(self, maps: LabelMaps, size: int, flip: bool, policy: str | None, augment: Transform | None) -> None:
        self.maps, self.size, self.flip, self.augment = maps, size, flip, augment
        self.transform_map = label_map_transform(policy) if policy is not None else None

    def batch(self, images: Sequence[Tensor], indices: Sequence[int]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return a `view` of each image (H, W, C) uint8 with its index in train, as one batch."""
        views = [
            self.view(image.permute(2, 0, 1), self.maps[index]) for image, index in zip(images, indices, strict=True)
        ]
        pixels, maps, crops = (torch.stack(parts) for parts in zip(*views, strict=True))
        return pixels, (maps, crops)

    def view(self, image: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Flip, then augment, then crop an image, in the order of VOLO's authors.

        Args:
            image: (C, H, W) uint8.
            labels: label map of the whole image (2, K, rows, columns).

        Returns:
            image (C, size, size) uint8; map of the whole augmented image; left, top, right and bottom edge of the crop
            as shares of the image.
        """
        if self.flip and torch.rand(()) < 0.5:
            image, labels = image.flip(-1), labels.flip(-1)
        if self.augment is not None and self.transform_map is not None:
            python_state, numpy_state = random.getstate(), np.random.get_state()
            image = self.augment(image)
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            labels = self.transform_map(labels)
        top, left, height, width = RandomResizedCrop.get_params(image, list(SCALE), list(RATIO))
        rows, columns = image.shape[-2:]
        crop = torch.tensor([left / columns, top / rows, (left + width) / columns, (top + height) / rows])
        cropped = functional.resized_crop(image, top, left, height, width, [self.size, self.size], antialias=True)
        return cropped, labels, crop


def label_map_transform(policy: str) -> Transform:
    """Return the geometric part of RandAugment for label maps (2, K, rows, columns).

    The same random draws move a map like its image: each cell gets the labels of the nearest cell that it came from.
    Cells from outside of the image have scores 0. `policy` is in timm's notation.
    """
    from timm.data.auto_augment import rand_augment_transform

    # timm draws one of several interpolations for an image. Two equal ones here consume the same random number.
    nearest = (Image.Resampling.NEAREST, Image.Resampling.NEAREST)
    draw = rand_augment_transform(policy, {"translate_const": 0, "img_mean": 0, "interpolation": nearest})
    for operation in draw.ops:
        if operation.name not in GEOMETRIC_OPS:
            operation.aug_fn = lambda image, *levels, **options: image

    def transform(labels: Tensor) -> Tensor:
        rows, columns = labels.shape[-2:]
        # Cells are numbered from 1; index 0 is a cell without labels.
        cells = np.arange(1, rows * columns + 1, dtype=np.int32).reshape(rows, columns)
        indices = torch.from_numpy(np.array(draw(Image.fromarray(cells)))).long()
        padded = torch.cat([torch.zeros_like(labels[..., :1, 0]), labels.flatten(2)], dim=2)
        return padded[..., indices]

    return transform
