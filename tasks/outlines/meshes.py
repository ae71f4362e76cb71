"""Mesh recovery (DropKey, Section 4.4), in outline."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import Metric, Task
from harness.trial import Trial, TrialRequest
from tasks.making import make_trial


class MeshRecipe(Recipe):
    """What mesh recovery adds to a recipe; the defaults are METRO's."""

    image_size: int = Field(default=224, ge=32, description="side of the model's input, in pixels")
    hidden_tokens: float = Field(default=0.3, ge=0, le=1, description="largest share of joints and vertices masked")
    rotate: float = Field(default=30.0, ge=0, description="degrees: spread of turns of images, of two fifths of them")
    rescale: float = Field(default=0.25, ge=0, lt=1, description="spread, and limit, of changes of the crop's size")
    noise: float = Field(default=0.4, ge=0, lt=1, description="each colour is up to so much brighter or darker")


class MeshRecoveryOutline(Task):
    """Bodies as meshes."""

    name: ClassVar[str] = "mesh-recovery"
    recipe_type: ClassVar[type[Recipe]] = MeshRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("mpve", higher_is_better=False, unit="mm"),
        Metric("mpjpe", higher_is_better=False, unit="mm"),
        Metric("pa-mpjpe", higher_is_better=False, unit="mm"),
    )
    recipe: MeshRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return make_trial(cls, request, settings)
