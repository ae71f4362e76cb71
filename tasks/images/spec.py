"""Spec of image classification (DropKey, Section 4.1): recipe, metrics and the making of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from dropbench.harness.registry import Registry
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import Recipe
from dropbench.tasks.classifier import ACCURACY
from dropbench.tasks.data import Source
from dropbench.tasks.data.fingerprint import fingerprint
from dropbench.tasks.preset_task import PresetTask

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_TOKEN_WEIGHT = 0.5
"""Published weight of the tokens' loss; the class token's loss has weight 1."""

MIN_CROPPED_SIZE = 64
"""Smallest model input, in pixels, for which images are cropped in evaluation."""


Augmentation = Callable[["Tensor"], "Tensor"]
"""A training image (channels, size, size) uint8 -> the same shape and type, drawing from the generators of Python,
NumPy and torch, which are seeded per batch."""
AUGMENTATIONS: Registry[Augmentation] = Registry("augmentation", "a function of an image")


class ImageRecipe(Recipe):
    """Hyper-parameters of image classification."""

    token_labels: Literal["image", "maps"] | None = Field(
        default=None,
        description="labels of VOLO's tokens: image: the image's label; maps: from published label maps; none",
    )
    token_weight: float | None = Field(
        default=None, gt=0, description=f"weight of the tokens' loss; default: {DEFAULT_TOKEN_WEIGHT}"
    )
    token_maps_fingerprint: str | None = Field(default=None, description="fingerprint of the label maps; filled in")
    image_size: int = Field(default=224, ge=1, description="side of the model's input, in pixels")
    channels: int = Field(default=3, ge=1, le=3, description="channels of the model's input")
    normalization: Literal["data", "imagenet"] | None = Field(
        default=None,
        description="mean and deviation of the input; default: those that a checkpoint names, else of the data",
    )
    flip: bool = Field(default=False, description="flip half of the training images horizontally")
    crop_padding: int = Field(default=0, ge=0, description="border added before a random crop, in pixels")
    resized_crop: bool = Field(default=False, description="random resized crops (scale 0.08 to 1), as on ImageNet")
    center_crop: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="side of the evaluation's crop, as a share of the image's; default: 0.875",
    )
    train_interpolation: Literal["bicubic", "random"] | None = Field(
        default=None,
        description="of random resized crops; random: bilinear or bicubic for each image; default: bilinear",
    )
    interpolation: Literal["bicubic"] | None = Field(default=None, description="of other images; default: bilinear")
    randaugment: str | None = Field(default=None, description="policy in timm's notation, such as rand-m9-mstd0.5-inc1")
    augmentation: str | None = Field(
        default=None, description="a plug-in's function of a training image, after the crop, the flip and RandAugment"
    )
    erase: float = Field(default=0.0, ge=0, le=1, description="probability of Random Erasing")
    erase_first: Literal[True] | None = Field(default=None, description="erase before images are mixed; default: after")
    mixup: float = Field(default=0.0, ge=0, description="α of MixUp; 0: off")
    cutmix: float = Field(default=0.0, ge=0, description="α of CutMix; 0: off")

    @field_validator("token_labels", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value == "none" else value

    @field_validator("augmentation")
    @classmethod
    def _registered_augmentation(cls, name: str | None) -> str | None:
        return name and AUGMENTATIONS.entry(name).name

    @model_validator(mode="after")
    def _check_token_labels(self) -> Self:
        if self.token_labels is not None and (self.mixup or self.cutmix):
            raise ValueError(f"token_labels={self.token_labels}: tokens are mixed: expected mixup=0 and cutmix=0")
        if self.token_labels == "maps" and (self.crop_padding or not self.resized_crop):
            raise ValueError("token_labels=maps: expected resized_crop=true and crop_padding=0")
        return self

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        own = {"token_weight": "not read without token_labels"}
        if self.token_labels is not None:
            own = {"class_weights": "not read with token_labels"}
        if self.token_labels == "maps":
            own["augmentation"] = "not read with token_labels=maps"
        if self.image_size < MIN_CROPPED_SIZE:
            own["center_crop"] = f"images below {MIN_CROPPED_SIZE} pixels are not cropped in evaluation"
        if not self.resized_crop:
            own["train_interpolation"] = "not read without resized_crop"
        if not (self.erase and (self.mixup or self.cutmix)):
            own["erase_first"] = "not read without both erase and mixup or cutmix"
        return super().unread(model) | own


class ImageClassificationSpec(PresetTask):
    """Image classification: one label per image."""

    name: ClassVar[str] = "image-classification"
    recipe_type: ClassVar[type[Recipe]] = ImageRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    recipe: ImageRecipe

    @classmethod
    def check_files(cls, recipe: Mapping[str, Any], source: Source, settings: Settings) -> dict[str, str]:
        if recipe.get("token_labels") != "maps":
            return {}
        from dropbench.tasks.data.images.label_maps import locate_maps

        folder = locate_maps(source)
        return {"token_maps_fingerprint": fingerprint(folder, [folder])}
