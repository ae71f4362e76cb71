"""Object detection with DETR (DropKey, Section 4.2): boxes with classes in photographs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from mmcv.transforms import Compose
from mmdet.registry import MODELS as DETECTORS
from mmdet.registry import TRANSFORMS
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from pydantic import Field
from torch import Tensor, nn

from adapters.detr import detr_config, in_mmdet, load_detr_weights
from harness.errors import InputError
from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import MODELS, Metric, Shown, Split, Task
from harness.trial import Trial, TrialRequest
from tasks.boxes_ap import METRICS, Prediction, average_precision, ground_truth
from tasks.data import read
from tasks.data.detection import DetectionData
from tasks.making import check_model, located, make_trial
from tasks.weights import located_weights

PUBLISHED_SIZE = 800
"""Shorter side of images in evaluation, in pixels, that mmdet's configuration is written for."""
LEAST_SIDE = 32
"""Smaller images are not trained on, nor are those without boxes (mmdet's configuration)."""
KEPT = ("img_id", "ori_shape", "img_shape", "scale_factor")
"""What is known of an image beside its pixels and boxes."""


class DetectionRecipe(Recipe):
    """What detection adds to a recipe."""

    image_size: int = Field(
        default=PUBLISHED_SIZE,
        ge=32,
        description="shorter side of images in evaluation, in pixels; those of training are published shares of it",
    )


class ObjectDetection(Task):
    """Boxes with classes."""

    name: ClassVar[str] = "object-detection"
    recipe_type: ClassVar[type[Recipe]] = DetectionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    recipe: DetectionRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return make_trial(cls, request, settings)

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`."""
        check_model(cls, trial, lambda recipe, classes: _build(trial.model, recipe, classes))
        if trial.weights is None and trial.recipe["model"].get("frozen", True):
            raise InputError(
                f"model {trial.model}: a frozen backbone with random weights learns nothing: expected --weights with a "
                "ResNet's or a DETR's, or --set model.frozen=false"
            )

    def setup(self) -> None:
        """Read the annotations; images are read when they are needed."""
        self.data = read(located(self.trial, self.settings), DetectionData)
        self.classes = self.data.classes
        self.splits = self.data.splits()
        train = self.splits["train"].images
        kept = [n for n, one in enumerate(train) if len(one.labels) and min(one.width, one.height) >= LEAST_SIDE]
        self.numbers: dict[Split, Sequence[int]] = {
            "train": kept, "dev": range(len(self.splits["dev"])), "test": range(len(self.splits["test"])),
        }  # fmt: skip
        if not kept:
            raise InputError(f"data '{self.data.name}': no image of train has a box")
        self.notes += self.data.notes
        if len(kept) < len(train):
            self.notes.append(f"{len(train) - len(kept)} training images without boxes, or too small, left out")
        pipelines = scaled_pipelines(self.recipe.image_size)
        with in_mmdet():
            self.load = TRANSFORMS.build(pipelines["train"][0])
            self.pipelines = {name: Compose(steps[1:]) for name, steps in pipelines.items()}
            self.preprocessor = DETECTORS.build(detr_config().model.data_preprocessor)
        self.truths: dict[Split, Any] = {}

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        model = _build(self.trial.model, self.recipe, len(self.classes))
        weights = located_weights(self.trial)
        if weights is not None:
            self.notes.append(load_detr_weights(model, weights))
        return model

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.numbers[split])

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Batches of upright or of lying images alone, which need less padding, as mmdet's sampler makes them."""
        order = torch.randperm(self.size("train"), generator=torch.Generator().manual_seed(seed)).tolist()
        if len(order) < size:
            yield order
            return
        waiting: tuple[list[int], list[int]] = ([], [])
        for index in order:
            image = self.splits["train"].images[self.numbers["train"][index]]
            group = waiting[image.width < image.height]
            group.append(index)
            if len(group) == size:
                yield list(group)
                group.clear()
        left = waiting[0] + waiting[1]
        for start in range(0, len(left) - len(left) % size, size):
            yield left[start : start + size]

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """One image at a time: with others it would be padded, which changes the answer a little."""
        return ([index] for index in range(self.size(split)))

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Images (3, H, W) uint8, blue first, each of its own size, their boxes (N, 4) and labels (N,), and `KEPT`."""
        found = [self._sample(split, self.numbers[split][index]) for index in indices]
        truths = [one["data_samples"].gt_instances for one in found]
        return {
            "images": [one["inputs"] for one in found],
            "boxes": [truth.bboxes.tensor for truth in truths],
            "labels": [truth.labels for truth in truths],
            "about": [{key: one["data_samples"].metainfo[key] for key in KEPT} for one in found],
        }

    def _sample(self, split: Split, number: int) -> dict[str, Any]:
        """What mmdet's pipeline makes of an image."""
        image, path = self.splits[split].images[number], self.splits[split].path(number)
        instances = [
            {"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)}
            for box, label, crowd in zip(image.boxes.tolist(), image.labels.tolist(), image.crowd.tolist(), strict=True)
        ]
        given = {"img_path": str(path), "img_id": image.id, "height": image.height, "width": image.width}
        try:
            loaded = self.load({**given, "instances": instances})
        except Exception as error:  # of a damaged file it raises what happens to go wrong
            raise InputError(f"{path}: the image cannot be read: {' '.join(str(error).split())[:80]}") from None
        made: dict[str, Any] = self.pipelines["train" if split == "train" else "test"](loaded)
        return made

    def weight(self, batch: dict[str, list[Any]]) -> float:
        """The number of images."""
        return len(batch["images"])

    def loss(self, model: nn.Module, batch: dict[str, list[Any]]) -> Tensor:
        """Of every decoder layer: classes, L1 and GIoU of boxes, each with its weight, summed."""
        images, samples = self._prepared(batch)
        with in_mmdet():
            losses: dict[str, Tensor] = model(images, samples, mode="loss")
        return torch.stack([value for name, value in losses.items() if "loss" in name]).sum()

    def _prepared(self, batch: dict[str, list[Any]]) -> tuple[Tensor, list[DetDataSample]]:
        """Normalised and padded images, and mmdet's samples."""
        samples = []
        for boxes, labels, about in zip(batch["boxes"], batch["labels"], batch["about"], strict=True):
            sample = DetDataSample(metainfo=dict(about))
            sample.gt_instances = InstanceData(bboxes=boxes, labels=labels)
            samples.append(sample)
        self.preprocessor.to(batch["images"][0].device)
        made = self.preprocessor({"inputs": list(batch["images"]), "data_samples": samples}, training=False)
        return made["inputs"], made["data_samples"]

    def predict(self, model: nn.Module, batch: dict[str, list[Any]]) -> list[Prediction]:
        """What the model finds in each image, in the image's own pixels."""
        images, samples = self._prepared(batch)
        found = model(images, samples, mode="predict")
        return [
            {
                "img_id": one.img_id,
                **{name: getattr(one.pred_instances, name).cpu().numpy() for name in ("bboxes", "scores", "labels")},
            }
            for one in found
        ]

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """COCO's average precisions in percent, over the images of the batches."""
        predictions = [one for batch in batches for one in self.predict(model, batch)]
        images = {one["img_id"] for one in predictions}
        whole = len(images) == self.size(split)
        truth = self.truths.get(split) if whole else None
        if truth is None:
            truth = ground_truth(self.splits[split].annotations, images)
        if whole:
            self.truths[split] = truth
        return average_precision(truth, self.data.category_ids, predictions)

    def shown(self, split: Split, index: int) -> Shown:
        """The image as the model gets it, but for its normalisation."""
        batch = self.batch(split, [index])
        names = dict.fromkeys(self.classes[label] for label in batch["labels"][0].tolist())
        return Shown(", ".join(names), image=batch["images"][0].flip(0).permute(1, 2, 0).numpy())


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


def _build(model: str, recipe: Recipe, classes: int) -> nn.Module:
    return MODELS.get(model)(model, recipe.model, classes=classes)
