"""Images as mmdet's DETR gets them, in training and in evaluation: what detection tasks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmcv.transforms import Compose
from mmdet.registry import MODELS, TRANSFORMS
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from numpy.typing import NDArray
from torch import Tensor

from adapters.detr import detr_config, in_mmdet
from harness.errors import InputError
from harness.trial import Trial
from tasks.outlines.detection import PUBLISHED_SIZE, DetectionRecipe

KEPT = ("img_id", "ori_shape", "img_shape", "scale_factor")
"""What is known of an image beside its pixels and boxes."""


class MmdetImages:
    """mmdet's pipelines for single images, and what it does with a batch of them.

    Args:
        recipe: says which sizes images have, and whether those of training are changed.
        change: what training then does with an image behind the flip, beside what mmdet does.
    """

    def __init__(
        self, recipe: DetectionRecipe, change: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        pipelines = scaled_pipelines(recipe.image_size)
        load, annotations, flip, *rest = pipelines["train"]
        changes = [change] if change is not None else []
        evaluated = pipelines["test"][1:]
        with in_mmdet():
            self.load = TRANSFORMS.build(load)
            # Boxes are scaled with their image where they are read before it is.
            plain = [annotations, evaluated[0], rest[-1]]
            self.train = Compose([annotations, flip, *changes, *rest] if recipe.augment else plain)
            self.evaluated = Compose(evaluated)
            self.preprocessor = MODELS.build(detr_config().model.data_preprocessor)

    def sample(self, path: Path, given: Mapping[str, Any], *, training: bool) -> tuple[Tensor, Any, dict[str, Any]]:
        """An image with its boxes.

        Args:
            path: the image's file.
            given: ``img_id`` and ``instances``, as mmdet's data sets have them.
            training: whether it is changed at random.

        Returns:
            pixels (3, H, W) uint8, blue first; boxes and labels, as mmdet's `gt_instances`; `KEPT`.

        Raises:
            InputError: the file cannot be read.
        """
        try:
            loaded = self.load({"img_path": str(path), **given})
        except Exception as error:  # of a damaged file it raises what happens to go wrong
            raise InputError(f"{path}: the image cannot be read: {' '.join(str(error).split())[:80]}") from None
        made = (self.train if training else self.evaluated)(loaded)
        sample = made["data_samples"]
        return made["inputs"], sample.gt_instances, {key: sample.metainfo[key] for key in KEPT}

    def prepared(
        self, images: Sequence[Tensor], about: Sequence[Mapping[str, Any]], truths: Mapping[str, Sequence[Tensor]]
    ) -> tuple[Tensor, list[DetDataSample]]:
        """Normalised and padded images (B, 3, rows, columns), and mmdet's samples.

        Args:
            images: as `sample` gives them, on the device.
            about: `KEPT` of each.
            truths: what is known of their boxes by its name in mmdet's `gt_instances`, one tensor an image.
        """
        samples = []
        for place, known in enumerate(about):
            sample = DetDataSample(metainfo=dict(known))
            sample.gt_instances = InstanceData(**{name: values[place] for name, values in truths.items()})
            samples.append(sample)
        self.preprocessor.to(images[0].device)
        made = self.preprocessor({"inputs": list(images), "data_samples": samples}, training=False)
        return made["inputs"], made["data_samples"]


def as_shown(image: Tensor) -> NDArray[Any]:
    """(3, H, W), blue first → (H, W, 3), red first."""
    shown: NDArray[Any] = image.flip(0).permute(1, 2, 0).numpy()
    return shown


def scaled(boxes: NDArray[Any], factor: Sequence[float]) -> NDArray[Any]:
    """Corners (N, 4) in pixels of an image in its file → in those of the image that the model gets.

    Args:
        boxes: left, top, right, bottom.
        factor: of width and height; ``scale_factor`` of `KEPT`.
    """
    made: NDArray[Any] = boxes * np.array([*factor, *factor])
    return made


def one_by_one(count: int) -> Iterator[list[int]]:
    """Batches of one image: with others it would be padded, which changes the answer a little."""
    return ([index] for index in range(count))


def refuse_frozen(trial: Trial, whose: str) -> None:
    """Raise InputError where a backbone with random weights would stay as it is; `whose` weights there might be."""
    if trial.weights is None and trial.recipe["model"].get("frozen", True):
        raise InputError(
            f"model {trial.model}: a frozen backbone with random weights learns nothing: expected --weights with "
            f"{whose}, or --set model.frozen=false"
        )


def scaled_pipelines(size: int) -> dict[str, list[dict[str, Any]]]:
    """mmdet's training and test pipelines with all sizes in proportion to `size`, which is 800 as published."""

    def scaled(step: Any) -> Any:
        if isinstance(step, list | tuple):
            return type(step)(scaled(part) for part in step)
        if not isinstance(step, dict):
            return step
        made = {key: scaled(value) for key, value in step.items()}
        for key in ("scale", "scales", "crop_size"):
            if key in made:
                made[key] = _times(made[key], size / PUBLISHED_SIZE)
        return made

    config = detr_config()
    pipelines = {"train": config.train_pipeline, "test": config.test_pipeline}
    return {name: [scaled(dict(step)) for step in steps] for name, steps in pipelines.items()}


def _times(sizes: Any, factor: float) -> Any:
    if isinstance(sizes, list | tuple):
        return type(sizes)(_times(part, factor) for part in sizes)
    return max(1, round(sizes * factor))
