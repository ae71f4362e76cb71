"""Base class of the detection tasks, which train mmdet's detectors on images prepared by mmdet's pipelines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from torch import Tensor, nn

from dropbench.adapters.vision.detr import in_mmdet
from dropbench.adapters.vision.options import DetrOptions
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import content_id
from dropbench.harness.trials.sample_view import SampleView
from dropbench.harness.trials.task import Split
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data.read import Data
from dropbench.tasks.detection.mmdet_pipeline import MmdetImages
from dropbench.tasks.detection.spec import DetectionRecipe
from dropbench.tasks.preset_task import PresetTask


class DetectionTask(PresetTask):
    """A detection task.

    Class attributes:
        truth_names: names of the ground truth in a batch and in mmdet's `gt_instances`.
        weight_sources: models whose weights fit the task's model, for error messages.

    Attributes, after `setup`:
        data: the data set.
        images: the image pipelines.
    """

    truth_names: ClassVar[tuple[str, ...]]
    weight_sources: ClassVar[str]
    recipe: DetectionRecipe
    data: Data
    images: MmdetImages

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `PresetTask.check`; raises InputError also for a frozen backbone with random weights."""
        super().check(trial)
        if trial.weights is None and trial.recipe["model"].get("frozen", True):
            raise InputError(
                f"model {trial.model}: a frozen backbone with random weights learns nothing: expected `--weights` with "
                f"{cls.weight_sources}, or `--set model.frozen=false`"
            )

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Yield single images, or as many as the recipe says: padding in a batch slightly changes the outputs."""
        return super().evaluation_batches(split, self.recipe.evaluation_batch or 1)

    @abstractmethod
    def sample(self, split: Split, index: int) -> dict[str, Any]:
        """Return ``images`` (3, H, W), uint8, BGR; ``meta``, the `META_KEYS` of the image; and the `truth_names`."""

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Return a list of each entry of `sample`: images of a batch differ in size."""
        samples = [self.sample(split, index) for index in indices]
        return {name: [sample[name] for sample in samples] for name in ("images", "meta", *self.truth_names)}

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the file name of the image."""
        return content_id(self.splits[split].images[index].name)

    @abstractmethod
    def label_names(self, sample: dict[str, Any]) -> Iterator[str]:
        """Yield the names of the labels in a sample, which may repeat."""

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the input image before normalization, with the names of the labels in it."""
        sample = self.sample(split, index)
        names = dict.fromkeys(self.label_names(sample))
        return SampleView(", ".join(names), image=sample["images"].flip(0).permute(1, 2, 0).numpy())

    def num_loss_terms(self, batch: dict[str, list[Any]]) -> float:
        """Return the number of images."""
        return len(batch["images"])

    @property
    def num_queries(self) -> int:
        """The number of queries of the model."""
        return int(self.recipe.model.get("num_queries", DetrOptions.model_fields["num_queries"].default))

    def num_targets(self, batch: dict[str, list[Any]]) -> tuple[float, ...]:
        """Return the number of boxes, or pairs, that the model's queries can match."""
        return (float(sum(min(self.num_queries, len(labels)) for labels in batch["labels"])),)

    def extent(self, batch: dict[str, list[Any]]) -> tuple[int, ...]:
        """Return the largest height and width of the images."""
        return tuple(max(image.shape[side] for image in batch["images"]) for side in (1, 2))

    def preprocess(self, batch: dict[str, list[Any]]) -> tuple[Tensor, list[DetDataSample]]:
        """Return normalized and padded images (B, 3, rows, columns), and mmdet's samples."""
        truths = zip(*(batch[name] for name in self.truth_names), strict=True)
        samples = [
            DetDataSample(
                metainfo={**meta, "share": self.share},
                gt_instances=InstanceData(**dict(zip(self.truth_names, truth, strict=True))),
            )
            for meta, truth in zip(batch["meta"], truths, strict=True)
        ]
        preprocessor = self.images.preprocessor.to(batch["images"][0].device)
        prepared = preprocessor({"inputs": batch["images"], "data_samples": samples}, training=False)
        inputs, padded = prepared["inputs"], prepared["data_samples"]
        if self.share is not None and self.share.extent != (size := tuple(inputs.shape[2:])):
            rows, columns = (whole - own for whole, own in zip(self.share.extent, size, strict=True))
            inputs = nn.functional.pad(inputs, (0, columns, 0, rows))
            for sample in padded:
                sample.set_metainfo({"batch_input_shape": self.share.extent})
        return inputs, padded

    def loss(self, model: nn.Module, batch: dict[str, list[Any]]) -> Tensor:
        """Return the sum over decoder layers of the weighted losses of the model's head."""
        with in_mmdet():
            losses: dict[str, Tensor] = model(*self.preprocess(batch), mode="loss")
        return torch.stack([value for name, value in losses.items() if "loss" in name]).sum()
