"""Object detection and interaction detection (DropKey, Sections 4.2 and 4.3), in outline."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from harness.errors import InputError
from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import Metric, Task
from harness.trial import Trial, TrialRequest
from tasks.data import SYNTHETIC
from tasks.making import cached_source, make_trial

PUBLISHED_SIZE = 800
"""Shorter side of images in evaluation, in pixels, that mmdet's configuration is written for."""
AP_NAMES = {
    "ap": "mAP",
    "ap50": "mAP_50",
    "ap75": "mAP_75",
    "ap-small": "mAP_s",
    "ap-medium": "mAP_m",
    "ap-large": "mAP_l",
}
"""Our names of what CocoMetric measures. Data without a box of some size have no AP of that size."""
AP_SETTINGS = {"": "default", "-known-object": "known object"}
"""Of HICO-DET's evaluation: what the names of metrics end with, and what is meant."""


class DetectionRecipe(Recipe):
    """What detection adds to a recipe."""

    image_size: int = Field(
        default=PUBLISHED_SIZE,
        ge=32,
        description="shorter side of images in evaluation, in pixels; those of training are published shares of it",
    )
    augment: bool = Field(
        default=True, description="whether images of training are changed at random; if not, they are as in evaluation"
    )


class ObjectDetectionOutline(Task):
    """Boxes with classes."""

    name: ClassVar[str] = "object-detection"
    recipe_type: ClassVar[type[Recipe]] = DetectionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = tuple(Metric(name, optional="-" in name) for name in AP_NAMES)
    recipe: DetectionRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return make_trial(cls, request, settings)


class InteractionDetectionOutline(Task):
    """Pairs of a person and an object, with verbs. Data without rare interactions have no metric of these."""

    name: ClassVar[str] = "interaction-detection"
    recipe_type: ClassVar[type[Recipe]] = DetectionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = tuple(
        Metric(f"map-{part}{ending}", optional=True) for ending in AP_SETTINGS for part in ("full", "rare", "non-rare")
    )
    recipe: DetectionRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        trial = make_trial(cls, request, settings)
        source = cached_source(request.data, settings)
        if not any(file.endswith("/") for file in source.layout.files):
            raise InputError(
                f"data '{request.data}' in {source.folder} are test annotations alone: training expects "
                f"{', '.join(source.dataset.layouts[0].files)}; get them from {source.dataset.home}, or run on a small "
                f"generated set: {source.dataset.name}{SYNTHETIC}"
            )
        return trial
