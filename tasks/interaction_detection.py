"""Interaction detection with QPIC (DropKey, Section 4.3): persons, objects, and what persons do with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.transforms.v2 import ColorJitter

from adapters.detr import DetrOptions, in_mmdet
from adapters.qpic import load_qpic_weights
from harness.feed import to_device
from harness.models import MODELS
from harness.recipe import Recipe
from harness.task import Mark, Marks, Shown, Split
from harness.trial import Trial
from tasks.data.hico import OBJECTS, VERBS
from tasks.data.interactions import InteractionData, PairedImage
from tasks.interaction_ap import Pairing, mean_average_precision
from tasks.making import check_model, read_noted
from tasks.marking import joined_boxes
from tasks.mmdet_images import MmdetImages, as_shown, one_by_one, refuse_frozen, scaled
from tasks.outlines.detection import InteractionDetectionOutline
from tasks.weights import located_weights

TRUTHS = ("labels", "verbs", "subjects", "objects")
"""What is known of the pairs of an image."""
JITTER = 0.4
"""Of brightness, contrast and saturation in training (QPIC's repository)."""


class InteractionDetection(InteractionDetectionOutline):
    """Pairs of a person and an object, with verbs."""

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`."""
        check_model(cls, trial, lambda recipe, _: _build(trial.model, recipe))
        refuse_frozen(trial, "a ResNet's, a DETR's or a QPIC's")

    def setup(self) -> None:
        """Read the annotations; images are read when they are needed."""
        self.data = read_noted(self, InteractionData)
        self.splits = self.data.splits()
        self.queries = int(self.recipe.model.get("num_queries", DetrOptions.model_fields["num_queries"].default))
        cut = sum(max(0, len(image.boxes) - self.queries) for image in self.splits["train"].images)
        if cut:
            self.notes.append(f"{cut} training boxes beyond the first {self.queries} of their image left out")
        self.images = MmdetImages(self.recipe, change=_jittered)

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        model = _build(self.trial.model, self.recipe)
        weights = located_weights(self.trial)
        if weights is not None:
            self.notes.append(load_qpic_weights(model, weights))
        return model

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.splits[split])

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """See `one_by_one`."""
        return one_by_one(self.size(split))

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Images (3, H, W) uint8, blue first, each of its own size, `KEPT` of each, and its P true pairs.

        Pairs are `labels` (P,), `verbs` (P, V), `subjects` and `objects` (P, 4), whose corners are in pixels: in
        training of the image as it is given, and only where neither box was cut away; else of the image in its file.
        """
        made: dict[str, list[Any]] = {name: [] for name in ("images", "about", *TRUTHS)}
        most = self.queries if split == "train" else None
        for index in indices:
            image, path = self.splits[split].images[index], self.splits[split].path(index)
            # The label of a box is its number in the image and its class, so that pairs find their boxes again.
            instances = [
                {"bbox": box, "bbox_label": [place, label], "ignore_flag": 0}
                for place, (box, label) in enumerate(zip(image.boxes.tolist(), image.labels.tolist(), strict=True))
            ][:most]
            given = {"img_id": index, "instances": instances}
            pixels, boxes, about = self.images.sample(path, given, training=split == "train")
            for name, value in {"images": pixels, "about": about, **_pairs(image, boxes)}.items():
                made[name].append(value)
        return made

    def weight(self, batch: dict[str, list[Any]]) -> float:
        """The number of images."""
        return len(batch["images"])

    def loss(self, model: nn.Module, batch: dict[str, list[Any]]) -> Tensor:
        """Of every decoder layer: classes of objects, verbs, L1 and GIoU of both boxes, each weighted, summed."""
        images, samples = self._prepared(batch)
        with in_mmdet():
            losses: dict[str, Tensor] = model(images, samples, mode="loss")
        return torch.stack(list(losses.values())).sum()

    def _prepared(self, batch: dict[str, list[Any]]) -> tuple[Tensor, list[DetDataSample]]:
        """Normalised and padded images, and mmdet's samples."""
        return self.images.prepared(batch["images"], batch["about"], {name: batch[name] for name in TRUTHS})

    def predict(self, model: nn.Module, batch: dict[str, list[Any]]) -> list[Pairing]:
        """What the model finds in each image, in the image's own pixels."""
        images, samples = self._prepared(batch)
        found = [one.pred_instances for one in model(images, samples, mode="predict")]
        return [
            Pairing(*(getattr(one, name).cpu().numpy() for name in ("subjects", "objects", "labels", "scores")))
            for one in found
        ]

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """HICO-DET's mean average precisions in percent, over the images of the batches."""
        truths: list[PairedImage] = []
        found: list[Pairing] = []
        for batch in batches:
            found += self.predict(model, batch)
            truths += [self.splits[split].images[about["img_id"]] for about in batch["about"]]
        return mean_average_precision(self.data.interactions, truths, found)

    def shown(self, split: Split, index: int) -> Shown:
        """The image as the model gets it, but for its normalisation."""
        batch, known = self.batch(split, [index]), self.data.interactions
        names = dict.fromkeys(
            f"{known.verbs[verb]} {known.objects[label]}"
            for label, verbs in zip(batch["labels"][0].tolist(), batch["verbs"][0], strict=True)
            for verb in verbs.nonzero()[:, 0].tolist()
        )
        return Shown(", ".join(names), image=as_shown(batch["images"][0]))

    def marks(self, model: nn.Module, split: Split, index: int) -> Marks:
        """Pairs, a verb each; of those found as many as there are true ones, the likeliest, but one at least."""
        batch, known = self.batch(split, [index]), self.data.interactions
        scale = batch["about"][0]["scale_factor"]

        def mark(pair: Sequence[Any], verb: int, score: float | None = None) -> Mark:
            label, subject, thing = pair
            boxes = scaled(np.stack([subject, thing]), scale)
            return Mark(f"{known.verbs[verb]} {known.objects[label]}", joined_boxes(boxes[0], boxes[1]), score)

        pairs = list(zip(*(batch[name][0].numpy() for name in ("labels", "subjects", "objects")), strict=True))
        true = [mark(pairs[pair], verb) for pair, verb in np.argwhere(batch["verbs"][0].numpy())]
        (found,) = self.predict(model, to_device(batch, next(model.parameters()).device))
        pairs = list(zip(found.labels, found.subjects, found.objects, strict=True))
        likeliest = found.scores.argsort(axis=None)[::-1][: max(1, len(true))]
        places = zip(*np.unravel_index(likeliest, found.scores.shape), strict=True)
        best = [mark(pairs[query], verb, float(found.scores[query, verb])) for query, verb in places]
        return Marks(true, best)


def _jittered(results: dict[str, Any]) -> dict[str, Any]:
    """The image (H, W, 3), blue first, in somewhat other colours."""
    image = torch.from_numpy(np.ascontiguousarray(results["img"][..., ::-1])).permute(2, 0, 1)
    changed = ColorJitter(JITTER, JITTER, JITTER)(image).permute(1, 2, 0).numpy()
    results["img"] = np.ascontiguousarray(changed[..., ::-1])
    return results


def _pairs(image: PairedImage, boxes: InstanceData) -> dict[str, Tensor]:
    """The true pairs of an image whose boxes are both still there; verbs of the same two boxes are one pair."""
    numbers, corners = boxes.labels.reshape(-1, 2), boxes.bboxes.tensor
    place_of = {number: place for place, number in enumerate(numbers[:, 0].tolist())}
    verbs_of: dict[tuple[int, int], list[int]] = {}
    for subject, thing, verb in image.pairs.tolist():
        if subject in place_of and thing in place_of:
            verbs_of.setdefault((place_of[subject], place_of[thing]), []).append(verb)
    verbs = torch.zeros(len(verbs_of), VERBS)
    for row, held in enumerate(verbs_of.values()):
        verbs[row, held] = 1
    places = torch.tensor(list(verbs_of), dtype=torch.long).reshape(-1, 2)
    return {
        "labels": numbers[places[:, 1], 1],
        "verbs": verbs,
        "subjects": corners[places[:, 0]],
        "objects": corners[places[:, 1]],
    }


def _build(model: str, recipe: Recipe) -> nn.Module:
    return MODELS.get(model)(model, recipe.model, objects=len(OBJECTS), verbs=VERBS)
