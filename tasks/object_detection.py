"""Object detection with DETR (DropKey, Section 4.2): boxes with classes in photographs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from mmdet.structures import DetDataSample
from torch import Tensor, nn

from adapters.detr import in_mmdet, load_detr_weights
from harness.errors import InputError
from harness.feed import to_device
from harness.models import MODELS
from harness.recipe import Recipe
from harness.task import Mark, Marks, Shown, Split
from harness.trial import Trial
from tasks.boxes_ap import Prediction, average_precision, ground_truth
from tasks.data.detection import DetectionData
from tasks.making import check_model, read_noted
from tasks.marking import box_line
from tasks.mmdet_images import MmdetImages, as_shown, one_by_one, refuse_frozen, scaled
from tasks.outlines.detection import ObjectDetectionOutline
from tasks.weights import located_weights

LEAST_SIDE = 32
"""Smaller images are not trained on, nor are those without boxes (mmdet's configuration)."""


class ObjectDetection(ObjectDetectionOutline):
    """Boxes with classes."""

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`."""
        check_model(cls, trial, lambda recipe, classes: _build(trial.model, recipe, classes))
        refuse_frozen(trial, "a ResNet's or a DETR's")

    def setup(self) -> None:
        """Read the annotations; images are read when they are needed."""
        self.data = read_noted(self, DetectionData)
        self.classes = self.data.classes
        self.splits = self.data.splits()
        train = self.splits["train"].images
        kept = [n for n, one in enumerate(train) if len(one.labels) and min(one.width, one.height) >= LEAST_SIDE]
        self.numbers: dict[Split, Sequence[int]] = {
            "train": kept, "dev": range(len(self.splits["dev"])), "test": range(len(self.splits["test"])),
        }  # fmt: skip
        if not kept:
            raise InputError(f"data '{self.data.name}': no image of train has a box")
        if len(kept) < len(train):
            self.notes.append(f"{len(train) - len(kept)} training images without boxes, or too small, left out")
        self.images = MmdetImages(self.recipe)
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
        """See `one_by_one`."""
        return one_by_one(self.size(split))

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Images (3, H, W) uint8, blue first, each of its own size, their boxes (N, 4) and labels (N,), and `KEPT`."""
        made: dict[str, list[Any]] = {name: [] for name in ("images", "boxes", "labels", "about")}
        for index in indices:
            number = self.numbers[split][index]
            image, path = self.splits[split].images[number], self.splits[split].path(number)
            boxes = zip(image.boxes.tolist(), image.labels.tolist(), image.crowd.tolist(), strict=True)
            instances = [{"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)} for box, label, crowd in boxes]
            given = {"img_id": image.id, "instances": instances}
            pixels, truth, about = self.images.sample(path, given, training=split == "train")
            for name, value in zip(made, (pixels, truth.bboxes.tensor, truth.labels, about), strict=True):
                made[name].append(value)
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
        truths = {"bboxes": batch["boxes"], "labels": batch["labels"]}
        return self.images.prepared(batch["images"], batch["about"], truths)

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
        return Shown(", ".join(names), image=as_shown(batch["images"][0]))

    def marks(self, model: nn.Module, split: Split, index: int) -> Marks:
        """Boxes; of those found as many as there are true ones, the likeliest, but one at least."""
        batch = self.batch(split, [index])
        scale = batch["about"][0]["scale_factor"]

        def mark(corners: Any, label: int, score: float | None = None) -> Mark:
            return Mark(self.classes[label], box_line(scaled(corners[None], scale)[0]), score)

        true = [mark(*one) for one in zip(batch["boxes"][0].numpy(), batch["labels"][0].tolist(), strict=True)]
        (found,) = self.predict(model, to_device(batch, next(model.parameters()).device))
        likeliest = found["scores"].argsort()[::-1][: max(1, len(true))]
        best = [mark(found["bboxes"][n], found["labels"][n], float(found["scores"][n])) for n in likeliest]
        return Marks(true, best)


def _build(model: str, recipe: Recipe, classes: int) -> nn.Module:
    return MODELS.get(model)(model, recipe.model, classes=classes)
