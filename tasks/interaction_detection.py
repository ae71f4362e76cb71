"""Interaction detection with QPIC (DropKey, Section 4.3): persons, objects, and what persons do with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from mmcv.transforms import Compose
from mmdet.registry import MODELS as DETECTORS
from mmdet.registry import TRANSFORMS
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.transforms.v2 import ColorJitter

from adapters.detr import DetrOptions, detr_config, in_mmdet
from adapters.qpic import load_qpic_weights
from harness.errors import InputError
from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import MODELS, Metric, Shown, Split, Task
from harness.trial import Trial, TrialRequest
from tasks.data import SYNTHETIC, read
from tasks.data.hico import OBJECTS, VERBS
from tasks.data.interactions import InteractionData, PairedImage
from tasks.interaction_ap import METRICS, Pairing, mean_average_precision
from tasks.making import cached_source, check_model, located, make_trial
from tasks.object_detection import KEPT, DetectionRecipe, scaled_pipelines
from tasks.weights import located_weights

JITTER = 0.4
"""Of brightness, contrast and saturation in training (QPIC's repository)."""


class InteractionDetection(Task):
    """Pairs of a person and an object, with verbs."""

    name: ClassVar[str] = "interaction-detection"
    recipe_type: ClassVar[type[Recipe]] = DetectionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    recipe: DetectionRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        trial = make_trial(cls, request, settings)
        source = cached_source(request.data, settings)
        if not any(file.endswith("/") for file in source.layout.files):
            raise InputError(
                f"data '{request.data}' in {source.folder} are test annotations alone: training expects "
                f"{', '.join(source.dataset.layouts[0].files)}; get them from {source.dataset.home}, or run on a small "
                f"generated set: {source.dataset.name}{SYNTHETIC}"
            )
        return trial

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`."""
        check_model(cls, trial, lambda recipe, _: _build(trial.model, recipe))
        if trial.weights is None and trial.recipe["model"].get("frozen", True):
            raise InputError(
                f"model {trial.model}: a frozen backbone with random weights learns nothing: expected --weights with a "
                "ResNet's, a DETR's or a QPIC's, or --set model.frozen=false"
            )

    def setup(self) -> None:
        """Read the annotations; images are read when they are needed."""
        self.data = read(located(self.trial, self.settings), InteractionData)
        self.splits = self.data.splits()
        self.queries = int(self.recipe.model.get("num_queries", DetrOptions.model_fields["num_queries"].default))
        self.notes += self.data.notes
        cut = sum(max(0, len(image.boxes) - self.queries) for image in self.splits["train"].images)
        if cut:
            self.notes.append(f"{cut} training boxes beyond the first {self.queries} of their image left out")
        pipelines = scaled_pipelines(self.recipe.image_size)
        with in_mmdet():
            self.load = TRANSFORMS.build(pipelines["train"][0])
            _, annotations, flip, *rest = pipelines["train"]
            steps = {"train": [annotations, flip, _jittered, *rest], "test": pipelines["test"][1:]}
            self.pipelines = {name: Compose(made) for name, made in steps.items()}
            self.preprocessor = DETECTORS.build(detr_config().model.data_preprocessor)

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
        """One image at a time: with others it would be padded, which changes the answer a little."""
        return ([index] for index in range(self.size(split)))

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Images (3, H, W) uint8, blue first, each of its own size, `KEPT` of each, and its P true pairs.

        Pairs are `labels` (P,), `verbs` (P, V), `subjects` and `objects` (P, 4), whose corners are in pixels: in
        training of the image as it is given, and only where neither box was cut away; else of the image in its file.
        """
        made: dict[str, list[Any]] = {
            name: [] for name in ("images", "about", "labels", "verbs", "subjects", "objects")
        }
        for index in indices:
            found = self._sample(split, index)
            sample = found["data_samples"]
            made["images"].append(found["inputs"])
            made["about"].append({key: sample.metainfo[key] for key in KEPT})
            for name, value in _pairs(self.splits[split].images[index], sample.gt_instances).items():
                made[name].append(value)
        return made

    def _sample(self, split: Split, number: int) -> dict[str, Any]:
        """What the pipeline makes of an image; the label of a box is its number in the image and its class."""
        image, path = self.splits[split].images[number], self.splits[split].path(number)
        most = self.queries if split == "train" else None
        instances = [
            {"bbox": box, "bbox_label": [place, label], "ignore_flag": 0}
            for place, (box, label) in enumerate(zip(image.boxes.tolist(), image.labels.tolist(), strict=True))
        ][:most]
        try:
            loaded = self.load({"img_path": str(path), "img_id": number, "instances": instances})
        except Exception as error:  # of a damaged file it raises what happens to go wrong
            raise InputError(f"{path}: the image cannot be read: {' '.join(str(error).split())[:80]}") from None
        made: dict[str, Any] = self.pipelines["train" if split == "train" else "test"](loaded)
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
        samples = []
        for place, about in enumerate(batch["about"]):
            sample = DetDataSample(metainfo=dict(about))
            sample.gt_instances = InstanceData(
                **{name: batch[name][place] for name in ("labels", "verbs", "subjects", "objects")}
            )
            samples.append(sample)
        self.preprocessor.to(batch["images"][0].device)
        made = self.preprocessor({"inputs": list(batch["images"]), "data_samples": samples}, training=False)
        return made["inputs"], made["data_samples"]

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
        return Shown(", ".join(names), image=batch["images"][0].flip(0).permute(1, 2, 0).numpy())


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
