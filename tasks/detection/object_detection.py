"""Object detection with DETR (DropKey, Section 4.2): boxes with classes, evaluated by pycocotools."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn

from dropbench.adapters.vision.detr import load_detr_weights
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.recorder import Recorder, shortest
from dropbench.harness.predictions.schema import Kind
from dropbench.harness.training.data_loading import to_device
from dropbench.harness.trials.sample_view import Overlay, Overlays
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.detection.coco import DetectionData, require_size
from dropbench.tasks.detection.base import DetectionTask
from dropbench.tasks.detection.mmdet_pipeline import MmdetImages, scale_boxes
from dropbench.tasks.detection.overlays import box_line
from dropbench.tasks.detection.spec import AP_NAMES, DetectionRecipe, ObjectDetectionRecipe, ObjectDetectionSpec

Prediction = Mapping[str, Any]
"""Detections in one image: `img_id`; `bboxes` (N, 4): left, top, right, bottom in pixels; `scores` (N,); `labels` (N,)
from 0."""
MIN_SIDE = 32
"""Shorter side of the smallest training images, in pixels (mmdet's configuration)."""


class ObjectDetection(DetectionTask, ObjectDetectionSpec):
    """Object detection: boxes with classes."""

    truth_names = ("bboxes", "labels")
    weight_sources = "a ResNet's or a DETR's"
    load_weights = staticmethod(load_detr_weights)
    data: DetectionData
    recipe: ObjectDetectionRecipe

    @classmethod
    def sizes_for(cls, recipe: DetectionRecipe, classes: int) -> dict[str, Any]:
        return {"classes": classes}

    def setup(self) -> None:
        """Read the annotations; images are read on demand."""
        self.data = self.read_data(DetectionData)
        train = self.data.train
        keeps_all = self.recipe.empty_images
        valid = [
            image
            for image in train.images
            if keeps_all or (len(image.labels) and min(image.width, image.height) >= MIN_SIDE)
        ]
        if not valid:
            raise InputError(f"data '{self.data.name}': no image of train has a box and {MIN_SIDE} pixels per side")
        if len(valid) < len(train):
            self.notes.append(f"training images without boxes, or too small, left out: {len(train) - len(valid)}")
        self.splits = {**self.data.splits(), "train": replace(train, images=tuple(valid))}
        self.images = MmdetImages(self.recipe)

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches of only portrait or only landscape images, which need less padding, as mmdet's sampler does.

        With `mixed_shapes`, the images of a batch are drawn from all.
        """
        if self.recipe.mixed_shapes:
            yield from super().epoch(size, seed)
            return
        order = torch.randperm(self.size("train"), generator=torch.Generator().manual_seed(seed)).tolist()
        if len(order) < size:
            yield order
            return
        groups: tuple[list[int], list[int]] = ([], [])
        for index in order:
            image = self.splits["train"].images[index]
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
        image, path = self.splits[split].images[index], self.splits[split].path(index)
        boxes = zip(image.boxes.tolist(), image.labels.tolist(), image.crowd.tolist(), strict=True)
        instances = [{"bbox": box, "bbox_label": label, "ignore_flag": int(crowd)} for box, label, crowd in boxes]
        info = {"img_id": image.id, "instances": instances}
        pixels, truth, meta = self.images.load(path, info, training=split == "train")
        height, width = meta["ori_shape"]
        require_size(path, image, width, height)
        return {"images": pixels, "meta": meta, "bboxes": truth.bboxes.tensor, "labels": truth.labels}

    def predict(self, model: nn.Module, batch: dict[str, list[Any]]) -> list[Prediction]:
        """Return the detections of each image, in pixels of the image file."""
        results = model(*self.preprocess(batch), mode="predict")
        return [{"img_id": result.img_id, **dict(result.pred_instances.numpy().items())} for result in results]

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return COCO's average precisions in percent over the images of the batches."""
        parts = self.map_batches(partial(self.predict, model), batches)
        predictions: list[Prediction] = [prediction for part in parts for prediction in part]
        if self.recorder is not None:
            record_boxes(self.recorder, predictions, self.classes)
        image_ids = frozenset(prediction["img_id"] for prediction in predictions)
        truth = ground_truth(self.splits[split].annotations, image_ids)
        return average_precision(truth, self.data.category_ids, predictions)

    def label_names(self, sample: dict[str, Any]) -> Iterator[str]:
        return (self.classes[label] for label in sample["labels"].tolist())

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


def record_boxes(recorder: Recorder, predictions: Iterable[Prediction], classes: Sequence[str]) -> None:
    """Record the detections of each image: its id in the annotations, boxes (N, 4), scores and labels."""
    columns: dict[str, Kind] = {"image": "count", "boxes": "matrix", "scores": "numbers", "labels": "classes"}
    corpus: dict[str, dict[str, str | bool]] = {name: {"scorer": "pycocotools"} for name in AP_NAMES}
    recorder.define(columns, classes=classes, corpus=corpus)
    for prediction in predictions:
        boxes, scores = (shortest(prediction[name]) for name in ("bboxes", "scores"))
        cells = (prediction["img_id"], boxes, scores, prediction["labels"].tolist())
        recorder.add([dict(zip(columns, cells, strict=True))])


@lru_cache(maxsize=3)
def ground_truth(annotations: Path, image_ids: frozenset[int]) -> COCO:
    """Return the annotations of some images from a COCO file, for COCO's evaluation.

    Missing areas, and those of 0, are those of the boxes. Ids count from 1: COCO's evaluation never matches a box with
    id 0.
    """
    content = json.loads(annotations.read_bytes())
    content["images"] = [image for image in content["images"] if image["id"] in image_ids]
    content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] in image_ids]
    for number, entry in enumerate(content["annotations"], 1):
        area = entry.get("area") or entry["bbox"][2] * entry["bbox"][3]
        # Segmentations are most of the file, and the evaluation of boxes does not need them.
        entry.update(id=number, area=area, iscrowd=int(entry.get("iscrowd") or 0), segmentation=None)
    truth = COCO()
    truth.dataset = content
    with redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def average_precision(truth: COCO, category_ids: Sequence[int], predictions: Sequence[Prediction]) -> dict[str, float]:
    """Return the metrics of `AP_NAMES` in percent, unrounded.

    Args:
        truth: the annotations of the images.
        category_ids: the category id of each label.
        predictions: the detections of each image.
    """
    detections = [
        {
            "image_id": prediction["img_id"],
            "category_id": category_ids[label],
            "bbox": [left, top, right - left, bottom - top],
            "score": score,
        }
        for prediction in predictions
        for (left, top, right, bottom), label, score in zip(
            *(prediction[name].tolist() for name in ("bboxes", "labels", "scores")), strict=True
        )
    ]
    with redirect_stdout(io.StringIO()):  # COCO's evaluation prints a table
        # `loadRes` needs at least one detection.
        evaluation = COCOeval(truth, truth.loadRes(detections) if detections else COCO(), "bbox")
        evaluation.params.catIds = list(category_ids)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    values = zip(AP_NAMES, evaluation.stats.tolist(), strict=False)
    return {name: 100 * value for name, value in values if value >= 0}
