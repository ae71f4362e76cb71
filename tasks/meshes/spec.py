"""Spec of mesh recovery (DropKey, Section 4.4): recipe and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import OF_CLASSES, Recipe
from dropbench.tasks.preset_task import PresetTask


class MeshRecipe(Recipe):
    """Hyper-parameters of mesh recovery; the defaults are METRO's."""

    image_size: int = Field(default=224, ge=32, description="side of the model's input, in pixels")
    hidden_tokens: float = Field(default=0.3, ge=0, le=1, description="maximum share of masked joints and vertices")
    rotate: float = Field(default=30.0, ge=0, description="std of the rotation of 40 % of the images, in degrees")
    rescale: float = Field(default=0.25, ge=0, lt=1, description="std and limit of the relative change of crop size")
    noise: float = Field(default=0.4, ge=0, lt=1, description="maximum relative change of each color channel")

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        return super().unread(model) | dict.fromkeys(OF_CLASSES, "the task has no such loss")


class MeshRecoverySpec(PresetTask):
    """Mesh recovery: bodies as meshes."""

    name: ClassVar[str] = "mesh-recovery"
    recipe_type: ClassVar[type[Recipe]] = MeshRecipe
    metrics: ClassVar[tuple[Metric, ...]] = tuple(
        Metric(name, higher_is_better=False, unit="mm") for name in ("mpve", "mpjpe", "pa-mpjpe")
    )
    recipe: MeshRecipe
