"""Object detection with DETR (DropKey, Section 4.2): boxes with classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from adapters.vision.detr import load_detr_weights
from harness.errors import InputError
from harness.training.data_loading import to_device
from harness.trials.samples import Overlay, Overlays, SampleView
from harness.trials.task import Split
from tasks.data.detection.coco import DetectionData
from tasks.detection.base import DetectionTask
from tasks.detection.coco_ap import Prediction, average_precision, ground_truth
from tasks.detection.mmdet_pipeline import MmdetImages, scale_boxes, to_rgb_array
from tasks.detection.overlays import box_line
from tasks.detection.spec import ObjectDetectionSpec
from tasks.trial_factory import read_with_notes

MIN_SIDE = 32
"""Shorter side of the smallest training images, in pixels (mmdet's configuration)."""


class ObjectDetection(DetectionTask, ObjectDetectionSpec):
    """Object detection: boxes with classes."""

    truth_names = ("bboxes", "labels")
    weight_sources = "a ResNet's or a DETR's"
    load_weights = staticmethod(load_detr_weights)
    data: DetectionData

    @staticmethod
    def head_sizes(classes: int) -> dict[str, int]:
        """See `DetectionTask.head_sizes`."""
        return {"classes": classes}

    def setup(self) -> None:
        """Read the annotations; images are read on demand."""
        self.data = read_with_notes(self, DetectionData)
        self.classes = self.data.classes
        self.splits = self.data.splits()
        train = self.splits["train"].images
        valid = [n for n, image in enumerate(train) if len(image.labels) and min(image.width, image.height) >= MIN_SIDE]
        self.numbers: dict[Split, Sequence[int]] = {
            "train": valid, "dev": range(len(self.splits["dev"])), "test": range(len(self.splits["test"])),
        }  # fmt: skip
        if not valid:
            raise InputError(f"data '{self.data.name}': no image of train has a box")
        if len(valid) < len(train):
            self.notes.append(f"{len(train) - len(valid)} training images without boxes, or too small, left out")
        self.images = MmdetImages(self.recipe)
        self.truths: dict[Split, Any] = {}

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.numbers[split])

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches of only portrait or only landscape images, which need less padding, as mmdet's sampler does."""
        order = torch.randperm(self.size("train"), generator=torch.Generator().manual_seed(seed)).tolist()
        if len(order) < size:
            yield order
            return
        groups: tuple[list[int], list[int]] = ([], [])
        for index in order:
            image = self.splits["train"].images[self.numbers["train"][index]]
            group = groups[image.width < image.height]
            group.append(index)
            if len(group) == size:
                yield list(group)
                group.clear()
        remaining = groups[0] + groups[1]
        for start in range(0, len(remaining) - len(remaining) % size, size):
            yield remaining[start : start + size]

    def sample(self, split: Split, index: int) -> dict[str, Any]:
        """See `DetectionTask.sample`; ``bboxes`` (N, 4) are in pixels of the input, ``labels`` are (N,)."""
        number = self.numbers[split][index]
        image, path = self.splits[split].images[number], self.splits[split].path(number)
        boxes = zip(image.boxes.tolist(), image.labels.tolist(), image.crowd.tolist(), strict=True)
        instances = [{"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)} for box, label, crowd in boxes]
        info = {"img_id": image.id, "instances": instances}
        pixels, truth, meta = self.images.load(path, info, training=split == "train")
        return {"images": pixels, "meta": meta, "bboxes": truth.bboxes.tensor, "labels": truth.labels}

    def predict(self, model: nn.Module, batch: dict[str, list[Any]]) -> list[Prediction]:
        """Return the detections of each image, in pixels of the image file."""
        images, samples = self.preprocess(batch)
        return [
            {
                "img_id": result.img_id,
                **{name: getattr(result.pred_instances, name).cpu().numpy() for name in ("bboxes", "scores", "labels")},
            }
            for result in model(images, samples, mode="predict")
        ]

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return COCO's average precisions in percent over the images of the batches."""
        predictions = [prediction for batch in batches for prediction in self.predict(model, batch)]
        image_ids = {prediction["img_id"] for prediction in predictions}
        complete = len(image_ids) == self.size(split)
        truth = self.truths.get(split) if complete else None
        if truth is None:
            truth = ground_truth(self.splits[split].annotations, image_ids)
        if complete:
            self.truths[split] = truth
        return average_precision(truth, self.data.category_ids, predictions)

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the input image before normalization, with the classes in it."""
        sample = self.sample(split, index)
        names = dict.fromkeys(self.classes[label] for label in sample["labels"].tolist())
        return SampleView(", ".join(names), image=to_rgb_array(sample["images"]))

    def overlays(self, model: nn.Module, split: Split, index: int) -> Overlays:
        """Return the true boxes and as many of the best detections, at least one."""
        batch = self.batch(split, [index])
        scale = batch["meta"][0]["scale_factor"]

        def overlay(box: Any, label: int, score: float | None = None) -> Overlay:
            return Overlay(self.classes[label], box_line(scale_boxes(box[None], scale)[0]), score)

        true = list(map(overlay, batch["bboxes"][0].numpy(), batch["labels"][0].tolist()))
        (prediction,) = self.predict(model, to_device(batch, next(model.parameters()).device))
        boxes, labels, scores = (prediction[name] for name in ("bboxes", "labels", "scores"))
        best = scores.argsort()[::-1][: max(1, len(true))]
        return Overlays(true, [overlay(boxes[row], labels[row], float(scores[row])) for row in best])
