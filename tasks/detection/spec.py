"""Specs of object and interaction detection (DropKey, Sections 4.2 and 4.3): recipe, metrics, the making of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import OF_CLASSES, Recipe
from dropbench.tasks.data import SYNTHETIC, Source
from dropbench.tasks.preset_task import PresetTask

PUBLISHED_SIZE = 800
"""Shorter side of images in evaluation, in pixels, in mmdet's configuration."""
AP_NAMES = ("ap", "ap50", "ap75", "ap-small", "ap-medium", "ap-large")
"""The first of the `stats` of pycocotools. Data without boxes of a size have no AP of that size."""
AP_SETTINGS = {"": "default", "-known-object": "known object"}
"""Suffixes of metric names, and the settings of HICO-DET's evaluation that they denote."""


class DetectionRecipe(Recipe):
    """Hyper-parameters of a detection task."""

    image_size: int = Field(
        default=PUBLISHED_SIZE,
        ge=32,
        description="shorter side of evaluation images, in pixels; the sizes of training images scale with it",
    )
    augment: bool = Field(default=True, description="augment training images; if not, prepare them as in evaluation")
    resize_backend: Literal["pillow"] | None = Field(default=None, description="library that resizes; default: OpenCV")
    evaluation_batch: int | None = Field(
        default=None, ge=2, description="images per batch of an evaluation, padded to one size; default: 1"
    )

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        return super().unread(model) | dict.fromkeys(OF_CLASSES, "the task has no such loss")


class ObjectDetectionRecipe(DetectionRecipe):
    """Hyper-parameters of object detection."""

    mixed_shapes: Literal[True] | None = Field(
        default=None, description="batches of portrait and landscape images; default: of one kind, as in mmdet"
    )
    empty_images: Literal[True] | None = Field(
        default=None, description="train on images without boxes, and on tiny ones; default: left out, as in mmdet"
    )


class ObjectDetectionSpec(PresetTask):
    """Object detection: boxes with classes."""

    name: ClassVar[str] = "object-detection"
    result_version: ClassVar[int] = 3
    recipe_type: ClassVar[type[Recipe]] = ObjectDetectionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = tuple(Metric(name, optional="-" in name) for name in AP_NAMES)
    recipe: ObjectDetectionRecipe


class InteractionDetectionSpec(PresetTask):
    """Interaction detection: pairs of a person and an object, with verbs; metrics of rare ones if there are any."""

    name: ClassVar[str] = "interaction-detection"
    result_version: ClassVar[int] = 3
    recipe_type: ClassVar[type[Recipe]] = DetectionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = tuple(
        Metric(f"map-{part}{ending}", optional=True) for ending in AP_SETTINGS for part in ("full", "rare", "non-rare")
    )
    recipe: DetectionRecipe

    @classmethod
    def check_files(cls, recipe: Mapping[str, Any], source: Source, settings: Settings) -> dict[str, str]:
        if not any(file.endswith("/") for file in source.layout.files):
            raise InputError(
                f"data '{source.name}' in {source.folder} have only test annotations: training expects "
                f"{', '.join(source.dataset.layouts[0].files)}; get them from {source.dataset.home}, or run on a small "
                f"generated set: {source.dataset.name}{SYNTHETIC}"
            )
        return {}
