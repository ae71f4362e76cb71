"""Interaction detection with QPIC (DropKey, Section 4.3): persons, objects, and verbs between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.transforms.v2 import ColorJitter

from dropbench.adapters.vision.qpic import load_qpic_weights
from dropbench.harness.predictions.recorder import Recorder, shortest
from dropbench.harness.predictions.schema import Kind
from dropbench.harness.training.data_loading import to_device
from dropbench.harness.trials.sample_view import Overlay, Overlays
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.detection.hico import OBJECTS, VERBS
from dropbench.tasks.data.detection.interactions import InteractionData, PairedImage
from dropbench.tasks.detection.base import DetectionTask
from dropbench.tasks.detection.interaction_ap import MAX_DETS, Pairing, best_detections, mean_average_precision
from dropbench.tasks.detection.mmdet_pipeline import MmdetImages, scale_boxes
from dropbench.tasks.detection.overlays import joined_boxes
from dropbench.tasks.detection.spec import DetectionRecipe, InteractionDetectionSpec

JITTER = 0.4
"""Strength of the jitter of brightness, contrast and saturation in training (QPIC's repository)."""


class InteractionDetection(DetectionTask, InteractionDetectionSpec):
    """Interaction detection: pairs of a person and an object, with verbs."""

    truth_names = ("labels", "verbs", "subjects", "objects")
    weight_sources = "a ResNet's, a DETR's or a QPIC's"
    load_weights = staticmethod(load_qpic_weights)
    data: InteractionData

    @classmethod
    def sizes_for(cls, recipe: DetectionRecipe, classes: int) -> dict[str, Any]:
        """Return HICO-DET's numbers of objects and verbs, for any data."""
        return {"objects": len(OBJECTS), "verbs": VERBS}

    def setup(self) -> None:
        """Read the annotations; images are read on demand."""
        self.data = self.read_data(InteractionData)
        self.splits = self.data.splits()
        excess = sum(max(0, len(image.boxes) - self.num_queries) for image in self.splits["train"].images)
        if excess:
            self.notes.append(f"training boxes beyond the first {self.num_queries} of their image, left out: {excess}")
        self.images = MmdetImages(self.recipe, augment=_jitter_colors)

    def sample(self, split: Split, index: int) -> dict[str, Any]:
        """See `DetectionTask.sample`; the P true pairs are labels (P,), verbs (P, V), subjects and objects (P, 4).

        In training, boxes are in pixels of the input, and pairs with a box outside of the crop are left out. In
        evaluation, boxes are in pixels of the image file.
        """
        image, path = self.splits[split].images[index], self.splits[split].path(index)
        # A box is labeled by its number in the image and its class, so that its pairs can be found after cropping.
        instances = [
            {"bbox": box, "bbox_label": [number, label], "ignore_flag": 0}
            for number, (box, label) in enumerate(zip(image.boxes.tolist(), image.labels.tolist(), strict=True))
        ][: self.num_queries if split == "train" else None]
        info = {"img_id": index, "instances": instances}
        pixels, boxes, meta = self.images.load(path, info, training=split == "train")
        return {"images": pixels, "meta": meta, **_remaining_pairs(image, boxes)}

    def num_targets(self, batch: dict[str, list[Any]]) -> tuple[float, ...]:
        """Return the number of pairs that the model's queries can match, and that of the verbs."""
        return (*super().num_targets(batch), float(sum(verbs.sum() for verbs in batch["verbs"])))

    def predict(self, model: nn.Module, batch: dict[str, list[Any]]) -> list[Pairing]:
        """Return the detected pairs of each image, in pixels of the image file."""
        results = model(*self.preprocess(batch), mode="predict")
        return [Pairing(**dict(result.pred_instances.numpy().items())) for result in results]

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return HICO-DET's mean average precisions in percent over the images of the batches."""

        def predict(batch: Any) -> tuple[list[dict[str, Any]], list[int]]:
            return [*map(vars, self.predict(model, batch))], [meta["img_id"] for meta in batch["meta"]]

        truths: list[PairedImage] = []
        predictions: list[Pairing] = []
        for pairings, numbers in self.map_batches(predict, batches):
            predictions += [Pairing(**pairing) for pairing in pairings]
            truths += [self.splits[split].images[number] for number in numbers]
        if self.recorder is not None:
            self._record(self.recorder, predictions)
        return mean_average_precision(self.data.interactions, truths, predictions)

    def _record(self, recorder: Recorder, predictions: Iterable[Pairing]) -> None:
        """Record the detections of each image that the metrics count, in descending order of score.

        ``pairs`` (N, 9) are the object's class, the subject's box and the object's box. Each detection has a row of
        them, the number of its interaction and a score.
        """
        columns: dict[str, Kind] = {"pairs": "matrix", "pair": "numbers", "labels": "classes", "scores": "numbers"}
        interactions = self.data.interactions
        corpus: dict[str, dict[str, str | bool]] = {metric.name: {"scorer": "hico-det"} for metric in self.metrics}
        recorder.define(columns, classes=interactions.names, corpus=corpus)
        for prediction in predictions:
            best = best_detections(interactions, prediction, MAX_DETS)
            used, pair = np.unique(best.rows, return_inverse=True)
            boxes = np.concatenate([prediction.subjects[used], prediction.objects[used]], axis=1)
            labels = prediction.labels[used].tolist()
            pairs = [[label, *corners] for label, corners in zip(labels, shortest(boxes), strict=True)]
            cells = (pairs, pair.tolist(), best.classes.tolist(), shortest(best.scores))
            recorder.add([dict(zip(columns, cells, strict=True))])

    def label_names(self, sample: dict[str, Any]) -> Iterator[str]:
        for pair, verb in sample["verbs"].nonzero().tolist():
            yield self._name(verb, int(sample["labels"][pair]))

    def overlays(self, model: nn.Module, split: Split, index: int) -> Overlays:
        """Return the true pairs, one for each verb, and as many of the best detections, at least one."""
        batch = self.batch(split, [index])
        scale = batch["meta"][0]["scale_factor"]

        def overlay(pair: Sequence[Any], verb: int, score: float | None = None) -> Overlay:
            label, *corners = pair
            subject, thing = scale_boxes(np.stack(corners), scale)
            return Overlay(self._name(verb, label), joined_boxes(subject, thing), score)

        pairs = list(zip(*(batch[name][0].numpy() for name in ("labels", "subjects", "objects")), strict=True))
        true = [overlay(pairs[pair], verb) for pair, verb in np.argwhere(batch["verbs"][0].numpy())]
        (prediction,) = self.predict(model, to_device(batch, next(model.parameters()).device))
        pairs = list(zip(prediction.labels, prediction.subjects, prediction.objects, strict=True))
        scores = prediction.scores
        best = np.unravel_index(scores.argsort(axis=None)[::-1][: max(1, len(true))], scores.shape)
        detected = [overlay(pairs[query], verb, float(scores[query, verb])) for query, verb in zip(*best, strict=True)]
        return Overlays(true, detected)

    def _name(self, verb: int, label: int) -> str:
        interactions = self.data.interactions
        return f"{interactions.verbs[verb]} {interactions.objects[label]}"


def _jitter_colors(results: dict[str, Any]) -> dict[str, Any]:
    """Jitter the colors of mmdet's image (H, W, 3), BGR."""
    image = torch.from_numpy(np.ascontiguousarray(results["img"][..., ::-1])).permute(2, 0, 1)
    jittered = ColorJitter(JITTER, JITTER, JITTER)(image).permute(1, 2, 0).numpy()
    results["img"] = np.ascontiguousarray(jittered[..., ::-1])
    return results


def _remaining_pairs(image: PairedImage, boxes: InstanceData) -> dict[str, Tensor]:
    """Return the true pairs of an image with both boxes left; verbs of the same two boxes form one pair."""
    labels, corners = boxes.labels.reshape(-1, 2), boxes.bboxes.tensor
    rows = {number: row for row, number in enumerate(labels[:, 0].tolist())}
    verbs_by_pair: dict[tuple[int, int], list[int]] = {}
    for subject, thing, verb in image.pairs.tolist():
        if subject in rows and thing in rows:
            verbs_by_pair.setdefault((rows[subject], rows[thing]), []).append(verb)
    verbs = torch.zeros(len(verbs_by_pair), VERBS)
    for pair, pair_verbs in enumerate(verbs_by_pair.values()):
        verbs[pair, pair_verbs] = 1
    subjects, objects = torch.tensor(list(verbs_by_pair), dtype=torch.long).reshape(-1, 2).T
    return {"labels": labels[objects, 1], "verbs": verbs, "subjects": corners[subjects], "objects": corners[objects]}
