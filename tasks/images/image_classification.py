"""Image classification (DropKey, Section 4.1): one label per image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from dropbench.adapters.vision.image_weights import checkpoint_normalization, load_image_weights
from dropbench.harness.errors import CHANGED, InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.predictions.schema import content_id
from dropbench.harness.trials.task import Split
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.classifier import Classifier
from dropbench.tasks.data.classification import ImageClassificationData
from dropbench.tasks.data.fingerprint import fingerprint
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.images import augmentation
from dropbench.tasks.images.spec import AUGMENTATIONS, MIN_CROPPED_SIZE, ImageClassificationSpec, ImageRecipe
from dropbench.tasks.weights import resolve_weights

if TYPE_CHECKING:
    from dropbench.harness.trials.sample_view import SampleView


class ImageClassification(Classifier, ImageClassificationSpec):
    """Image classification: one label per image."""

    load_weights = staticmethod(load_image_weights)

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `PresetTask.check`; raises InputError also for token labels that the model does not support."""
        labels = trial.recipe.get("token_labels")
        if labels and not MODELS.entry(trial.model).facts.get("token_labels"):
            supported = ", ".join(name for name in MODELS if MODELS.entry(name).facts.get("token_labels"))
            raise InputError(f"token_labels={labels}: model '{trial.model}' has no token labels: expected {supported}")
        super().check(trial)

    @classmethod
    def sizes_for(cls, recipe: ImageRecipe, classes: int) -> dict[str, Any]:
        side = recipe.image_size
        return {"image_size": (side, side), "channels": recipe.channels, "classes": classes}

    def setup(self) -> None:
        """Read the images; those in folders are read on demand."""
        data = self.read_data(ImageClassificationData)
        policy, size = self.recipe.randaugment, self.recipe.image_size
        if policy is not None and self.recipe.channels != 3:
            raise InputError(f"randaugment={policy}: expected channels=3, not {self.recipe.channels}")
        self.interpolation = InterpolationMode(self.recipe.interpolation or "bilinear")
        self.splits = data.splits()
        self.labels = {name: torch.as_tensor(split.labels) for name, split in self.splits.items()}
        self.mean, self.std = self.normalization(self.splits["train"].images)
        self.randaugment = None
        if policy is not None:
            self.randaugment = augmentation.random_augment(policy, size, self.mean, self.recipe.train_interpolation)
        name = self.recipe.augmentation
        self.augmentation = None if name is None else AUGMENTATIONS.get(name)
        self.views = None
        if self.recipe.token_labels == "maps":
            from dropbench.tasks.data.images.label_maps import LabelMaps, locate_maps
            from dropbench.tasks.images.token_labels import LabelMapViews

            folder = locate_maps(resolve_data(self.trial, self.settings))
            if fingerprint(folder, [folder]) != self.recipe.token_maps_fingerprint:
                raise InputError(f"the label maps in {folder} {CHANGED}")
            maps = LabelMaps.for_images(folder, self.splits["train"].images, len(self.classes))
            self.views = LabelMapViews(maps, self.recipe, self.randaugment)

    def normalization(self, images: Any) -> tuple[Tensor, Tensor]:
        """Return the mean and deviation (C,) of the input, and append a note if a checkpoint names them."""
        weights = resolve_weights(self.trial) if self.recipe.channels == 3 and not self.recipe.normalization else None
        if weights is not None and (pair := checkpoint_normalization(weights)) is not None:
            mean, std = (", ".join(f"{value:.3f}" for value in values.tolist()) for values in pair)
            self.notes.append(f"images are normalized as the checkpoint says: mean {mean}, deviation {std}")
            return pair
        if self.recipe.normalization == "imagenet" or not isinstance(images, np.ndarray):
            # Image folders are not read in advance.
            return torch.tensor(IMAGENET_DEFAULT_MEAN), torch.tensor(IMAGENET_DEFAULT_STD)
        flat = images.reshape(-1, images.shape[-1]) / 255.0
        return torch.as_tensor(flat.mean(0)).float(), torch.as_tensor(flat.std(0)).float()

    def train_targets(self) -> Tensor:
        return self.labels["train"]

    def build_model(self) -> nn.Module:
        model = super().build_model()
        if self.recipe.token_labels is not None:
            self.grid: tuple[int, int] = cast(Any, model).token_grid
        return model

    def batch(self, split: Split, indices: Sequence[int]) -> tuple[Tensor, Any]:
        """Return normalized images (B, C, size, size) and labels (B,), or class probabilities (B, classes) if mixed.

        Training images with label maps come with their maps and crops instead of labels (`LabelMapViews.batch`).
        """
        images, training = self.splits[split].images, split == "train"
        labels: Any = self.labels[split][list(indices)]
        if training and self.views is not None:
            pixels, labels = self.views.batch([torch.from_numpy(images[index]) for index in indices], indices)
        else:
            pixels = self.fit_all(images, indices, training)
            if training:
                pixels = augmentation.random_crop_flip(pixels, self.recipe.crop_padding, self.recipe.flip)
                for augment in filter(None, (self.randaugment, self.augmentation)):
                    pixels = torch.stack([augment(image) for image in pixels])
        pixels = augmentation.normalize(pixels, self.mean, self.std)
        if training and self.recipe.erase and self.recipe.erase_first:
            augmentation.erase_boxes(pixels, self.recipe.erase)
        if training and (self.recipe.mixup or self.recipe.cutmix):
            mixed = augmentation.mixup_cutmix(pixels, labels, len(self.classes), self.recipe.mixup, self.recipe.cutmix)
            pixels, labels = mixed
        if training and self.recipe.erase and not self.recipe.erase_first:
            augmentation.erase_boxes(pixels, self.recipe.erase)
        return pixels, labels

    def plain_images(self, split: Split, indices: Sequence[int]) -> Tensor:
        """Return normalized images (B, C, size, size) as in evaluation, also those of train."""
        return augmentation.normalize(self.fit_all(self.splits[split].images, indices, False), self.mean, self.std)

    def fit_all(self, images: Any, indices: Sequence[int], training: bool) -> Tensor:
        """Return some images as (B, C, size, size) uint8, each as by `fit`."""
        size = self.recipe.image_size
        if isinstance(images, np.ndarray) and images.shape[1:3] == (size, size) and not self.recipe.resized_crop:
            batch = torch.from_numpy(images[list(indices)]).permute(0, 3, 1, 2)  # one copy for all
            return batch.expand(-1, self.recipe.channels, -1, -1).contiguous()
        return torch.stack([self.fit(torch.from_numpy(images[index]), training) for index in indices])

    def fit(self, image: Tensor, training: bool) -> Tensor:
        """Return an image (H, W, C) uint8 as (C, size, size) uint8: a random resized crop or the center crop.

        Crops are random only in training, and only if the recipe has `resized_crop`.
        """
        size, image = self.recipe.image_size, image.permute(2, 0, 1)
        if training and self.recipe.resized_crop:
            image, _ = augmentation.resized_crop(image, size, self.recipe.train_interpolation)
        elif image.shape[-2:] != (size, size):
            share = self.recipe.center_crop
            # Resized to 256 / 224 of the crop, as on ImageNet; small images are resized without a crop.
            shorter = [round(size * 256 / 224) if share is None else int(size / share)]
            shorter = shorter if size >= MIN_CROPPED_SIZE else [size, size]
            resized = functional.resize(image, shorter, self.interpolation, antialias=True)
            image = functional.center_crop(resized, [size, size])
        return image.expand(self.recipe.channels, -1, -1)

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the file name of an image, or its pixels, and by its class."""
        images, label = self.splits[split].images, self.classes[int(self.labels[split][index])]
        name = getattr(images, "names", None)
        return content_id(images[index].tobytes() if name is None else bytes(name[index]), label)

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the input image before normalization, with its class."""
        image = self.fit(torch.from_numpy(self.splits[split].images[index]), training=False)
        label = self.classes[int(self.labels[split][index])]
        from dropbench.harness.trials.sample_view import SampleView

        return SampleView(label, image=image.permute(1, 2, 0).numpy())

    def loss_and_logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the cross entropy, including that of the tokens if they have labels, and the logits (B, classes)."""
        if self.recipe.token_labels is not None:
            images, labels = batch
            from dropbench.tasks.images.token_labels import token_label_loss

            return token_label_loss(model, images, labels, self.grid, len(self.classes), self.recipe)
        return super().loss_and_logits(model, batch)
