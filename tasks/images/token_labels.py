"""Token labeling (Jiang et al. 2021, "All Tokens Matter"), as used to train VOLO.

Each image has a label for the class token and one for each of its tokens. The tokens of a box are exchanged between
pairs of images at the model's input: the class token predicts the mixed label, each token the label of its own image.
Labels from published maps are cut and augmented together with their images.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, softmax

from dropbench.harness.seeding import alike_in_all_parts
from dropbench.tasks.data.images.label_maps import LabelMaps
from dropbench.tasks.images.augmentation import resized_crop
from dropbench.tasks.images.spec import DEFAULT_TOKEN_WEIGHT, ImageRecipe

Transform = Callable[[Tensor], Tensor]
GEOMETRIC_OPS = frozenset({"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "TranslateXRel", "TranslateYRel"})
"""RandAugment's operations that move pixels."""


def token_label_loss(model: nn.Module, images: Tensor, labels: Any, grid: Sequence[int], classes: int,
                     recipe: ImageRecipe) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the cross entropy of the class token plus `token_weight` times that of all tokens, and the class's logits.

    Args:
        model: `dropbench.adapters.vision.volo.Volo`.
        images: (B, C, H, W).
        labels: (B,), shared by all tokens of an image; or maps (B, 2, K, rows, columns) and crops (B, 4).
        grid: rows and columns of the tokens.
        classes: number of classes.
        recipe: the token weight and the label smoothing.
    """
    from dropbench.adapters.vision.volo import random_box

    rows, columns = grid
    if isinstance(labels, Tensor):
        target = one_hot(labels, classes).float()
        token_target = target[:, None].expand(-1, rows * columns, -1)
    else:
        maps, crops = labels
        target, token_target = labels_from_maps(maps, crops, (rows, columns), classes)
    with alike_in_all_parts():
        box = random_box(rows, columns)
    top, left, bottom, right = box
    share = (bottom - top) * (right - left) / (rows * columns)
    logits, token_logits = model(images, box)
    off_value = recipe.label_smoothing / classes
    scale = 1 - recipe.label_smoothing
    if not isinstance(labels, Tensor):
        scale += off_value  # as in the authors' code: the targets sum to a little more than 1
    target, token_target = target * scale + off_value, token_target * scale + off_value
    loss = cross_entropy(logits, torch.lerp(target, target.flip(0), share))
    weight = DEFAULT_TOKEN_WEIGHT if recipe.token_weight is None else recipe.token_weight
    return loss + weight * cross_entropy(token_logits.flatten(0, 1), token_target.flatten(0, 1)), logits


def labels_from_maps(maps: Tensor, crops: Tensor, grid: tuple[int, int], classes: int) -> tuple[Tensor, Tensor]:
    """Return the labels of class token and tokens from a crop of each label map (RoI align, He et al. 2017).

    Args:
        maps: (B, 2, K, rows, columns): scores and classes; classes that are not among the K have score 0.
        crops: (B, 4): left, top, right, bottom as shares of the image.
        grid: rows and columns of the tokens.
        classes: number of classes.

    Returns:
        class probabilities of the whole crop (B, classes) and of each token (B, tokens, classes).
    """
    scores, numbers = maps.unbind(1)
    dense = scores.new_zeros(len(maps), classes, *maps.shape[-2:]).scatter_(1, numbers.long(), scores)
    left, top, right, bottom = crops.unbind(1)

    def aligned(rows: int, columns: int) -> Tensor:
        down = roi_align_weights(top, bottom, rows, maps.shape[-2])
        across = roi_align_weights(left, right, columns, maps.shape[-1])
        return torch.einsum("brh,bchw,bsw->brsc", down, dense, across).flatten(1, 2)

    return softmax(aligned(1, 1)[:, 0], dim=-1), softmax(aligned(*grid), dim=-1)


def roi_align_weights(low: Tensor, high: Tensor, bins: int, cells: int) -> Tensor:
    """Return RoI align's weights of the cells along one axis; applied to rows and columns, they are bilinear.

    The interval from low to high is divided into equal bins. A bin is the mean of equidistant sampling points, as many
    as its length in cells (rounded up), each interpolated linearly between the centers of two cells.

    Args:
        low: (B,) start of the interval, as a share of the axis.
        high: (B,) end of the interval.
        bins: number of bins.
        cells: number of cells.

    Returns:
        (B, bins, cells); the weights of each bin sum to 1.
    """
    low, size = (cells * low)[:, None, None], (cells * (high - low) / bins)[:, None, None]
    num_points = size.ceil().clamp(min=1)
    point = torch.arange(-(-cells // bins), device=low.device)
    bin_index = torch.arange(bins, device=low.device)[:, None]
    position = (low + (bin_index + (point + 0.5) / num_points) * size - 0.5).clamp(0, cells - 1)
    weights = (1 - (position[..., None] - torch.arange(cells, device=low.device)).abs()).clamp(min=0)
    return (weights * (point < num_points)[..., None]).sum(2) / num_points


class LabelMapViews:
    """Augmented views of training images together with their label maps.

    Args:
        maps: label maps of the training images.
        recipe: the size of the images, and whether they are flipped.
        augment: RandAugment by the recipe's policy; None: no RandAugment.
    """

    def __init__(self, maps: LabelMaps, recipe: ImageRecipe, augment: Transform | None) -> None:
        self.maps, self.recipe, self.augment = maps, recipe, augment
        policy = recipe.randaugment
        self.transform_map = label_map_transform(policy, recipe.train_interpolation) if policy is not None else None

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
        if self.recipe.flip and torch.rand(()) < 0.5:
            image, labels = image.flip(-1), labels.flip(-1)
        if self.augment is not None and self.transform_map is not None:
            python_state, numpy_state = random.getstate(), np.random.get_state()
            image = self.augment(image)
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            labels = self.transform_map(labels)
        cropped, (top, left, height, width) = resized_crop(
            image, self.recipe.image_size, self.recipe.train_interpolation
        )
        rows, columns = image.shape[-2:]
        crop = torch.tensor([left / columns, top / rows, (left + width) / columns, (top + height) / rows])
        return cropped, labels, crop


def label_map_transform(policy: str, interpolation: str | None = None) -> Transform:
    """Return the geometric part of RandAugment for label maps (2, K, rows, columns).

    The same random draws move a map like its image: each cell gets the labels of the nearest cell that it came from.
    Cells from outside of the image have scores 0. `policy` and `interpolation` are those of `random_augment`.
    """
    from timm.data.auto_augment import rand_augment_transform

    # timm draws one of two interpolations for an image. Two equal ones here consume the same random number.
    nearest = Image.Resampling.NEAREST
    options = {"interpolation": nearest if interpolation == "bicubic" else (nearest, nearest)}
    draw = rand_augment_transform(policy, {"translate_const": 0, "img_mean": 0, **options})
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
