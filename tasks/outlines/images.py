"""Image classification (DropKey, Section 4.1), in outline."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import Metric, Task
from harness.trial import Trial, TrialRequest
from tasks.data.locate import Source
from tasks.making import cached_source, make_trial
from tasks.outlines.common import ACCURACY

WEIGHT = 0.5
"""Of the tokens' loss beside that of the class token, as published."""


class TokenLabelRecipe(Recipe):
    """What a label for every token adds to a recipe."""

    token_labels: Literal["image", "maps"] | None = Field(
        default=None,
        description="labels of VOLO's tokens: image: all have the image's; maps: from label maps beside ImageNet; none",
    )
    token_weight: float | None = Field(default=None, gt=0, description=f"of the tokens' loss; default: {WEIGHT}")
    token_maps_fingerprint: str | None = Field(default=None, description="of the label maps; filled in")

    @field_validator("token_labels", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value == "none" else value

    def impossible(self, mixed: bool, cropped: bool) -> str | None:
        """Why there can be no label for every token in a recipe that mixes images, or crops them at random or not."""
        if self.token_labels is not None and mixed:
            return f"token_labels={self.token_labels}: tokens are mixed: expected mixup=0 and cutmix=0"
        if self.token_labels == "maps" and not cropped:
            return "token_labels=maps: expected resized_crop=true and crop_padding=0"
        return None


class ImageRecipe(TokenLabelRecipe):
    """What images add to a recipe."""

    image_size: int = Field(default=224, ge=1, description="side of the model's input, in pixels")
    channels: int = Field(default=3, ge=1, le=3)
    flip: bool = Field(default=False, description="mirror half of the training images")
    crop_padding: int = Field(default=0, ge=0, description="pixels added on each side before a random crop")
    resized_crop: bool = Field(default=False, description="random resized crops (scale 0.08 to 1), as on ImageNet")
    randaugment: str | None = Field(default=None, description="policy in timm's notation, such as rand-m9-mstd0.5-inc1")
    erase: float = Field(default=0.0, ge=0, le=1, description="share of training images with a rectangle of noise")
    mixup: float = Field(default=0.0, ge=0, description="α of mixup, 0: none")
    cutmix: float = Field(default=0.0, ge=0, description="α of CutMix, 0: none")

    @model_validator(mode="after")
    def _labels_of_tokens(self) -> Self:
        mixed = self.mixup > 0 or self.cutmix > 0
        wrong = self.impossible(mixed, cropped=self.resized_crop and not self.crop_padding)
        if wrong is not None:
            raise ValueError(wrong)
        return self


class ImageClassificationOutline(Task):
    """A label for each image."""

    name: ClassVar[str] = "image-classification"
    recipe_type: ClassVar[type[Recipe]] = ImageRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    recipe: ImageRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return _with_fingerprint(make_trial(cls, request, settings), cached_source(request.data, settings))


def _with_fingerprint(trial: Trial, source: Source) -> Trial:
    """The trial with the fingerprint of its label maps, where it needs some.

    Raises:
        InputError: they are not there; says where to get them.
    """
    if trial.recipe.get("token_labels") != "maps":
        return trial
    from tasks.data.label_maps import locate_maps, maps_fingerprint

    found = maps_fingerprint(locate_maps(source))
    return trial.model_copy(update={"recipe": {**trial.recipe, "token_maps_fingerprint": found}})
