"""mmdet's image pipelines of DETR for training and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from mmcv.transforms import Compose
from mmdet.registry import MODELS, TRANSFORMS
from numpy.typing import NDArray
from torch import Tensor

from dropbench.adapters.vision.detr import detr_config, in_mmdet
from dropbench.harness.errors import InputError
from dropbench.tasks.detection.spec import PUBLISHED_SIZE, DetectionRecipe

META_KEYS = ("img_id", "ori_shape", "img_shape", "scale_factor")
"""The keys of mmdet's metainfo that a batch holds for each image."""
SIZE_KEYS = ("scale", "scales", "crop_size")
"""Options of mmdet's transforms that are sizes in pixels."""
UNLIMITED = 10**6
"""Longest side of an image that is resized to be cropped. DETR and QPIC limit it after the crop alone, mmdet always."""


class MmdetImages:
    """mmdet's pipelines for single images, and its preprocessor for batches.

    Args:
        recipe: the image size, and whether training images are augmented.
        augment: an augmentation of training images after mmdet's flip, as a transform of mmdet's results.
    """

    def __init__(
        self, recipe: DetectionRecipe, augment: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        pipelines = scaled_pipelines(recipe.image_size, recipe.resize_backend)
        read_image, read_boxes, flip, *rest = pipelines["train"]
        extra = [augment] if augment is not None else []
        resize, *_ = evaluation = pipelines["test"][1:]
        with in_mmdet():
            self.read_image = TRANSFORMS.build(read_image)
            # In evaluation mmdet reads the boxes after resizing; in training they must be scaled with their image.
            plain = [read_boxes, resize, rest[-1]]
            self.training = Compose([read_boxes, flip, *extra, *rest] if recipe.augment else plain)
            self.evaluation = Compose(evaluation)
            self.preprocessor = MODELS.build(detr_config().model.data_preprocessor)

    def load(self, path: Path, info: Mapping[str, Any], *, training: bool) -> tuple[Tensor, Any, dict[str, Any]]:
        """Load an image with its boxes, for training augmented if the recipe says so.

        Args:
            path: the image's file.
            info: ``img_id`` and ``instances``, as in mmdet's data sets.
            training: the pipeline: of training, or of evaluation.

        Returns:
            pixels (3, H, W) uint8, BGR; boxes and labels, as mmdet's `gt_instances`; the values of `META_KEYS`.

        Raises:
            InputError: the file cannot be read.
        """
        try:
            results = self.read_image({"img_path": str(path), **info})
        except Exception as error:  # mmcv has no error type of its own for damaged files
            raise InputError(f"{path}: the image cannot be read: {' '.join(str(error).split())[:80]}") from None
        results = (self.training if training else self.evaluation)(results)
        sample = results["data_samples"]
        return results["inputs"], sample.gt_instances, {key: sample.metainfo[key] for key in META_KEYS}


def scale_boxes(boxes: NDArray[Any], factor: Sequence[float]) -> NDArray[np.float64]:
    """Scale boxes (N, 4) from pixels of the image file to pixels of the model's input.

    Args:
        boxes: left, top, right, bottom.
        factor: of width and height; ``scale_factor`` of `META_KEYS`.
    """
    return boxes * np.tile(np.array(factor, np.float64), 2)


def scaled_pipelines(size: int, backend: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return mmdet's training and test pipelines with all sizes scaled by `size` over the published 800 pixels.

    `backend` is the library that resizes images; None: mmdet's, OpenCV.
    """

    def scale(value: Any, *, is_size: bool = False) -> Any:
        if isinstance(value, dict):
            resizes = {"backend": backend} if backend and str(value.get("type")).endswith("Resize") else {}
            return {key: scale(part, is_size=key in SIZE_KEYS) for key, part in value.items()} | resizes
        if isinstance(value, list | tuple):
            return type(value)(scale(part, is_size=is_size) for part in value)
        return max(1, round(value * size / PUBLISHED_SIZE)) if is_size else value

    config = detr_config()
    training = scale(list(config.train_pipeline))
    for branch in (branch for transform in training for branch in transform.get("transforms", ())):
        for first, second in pairwise(branch):
            if second["type"] == "RandomCrop":
                first["scales"] = [(shorter, UNLIMITED) for shorter, _ in first["scales"]]
    return {"train": training, "test": scale(list(config.test_pipeline))}
