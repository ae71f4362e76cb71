"""Object detection data: images with labeled boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.detection.annotations import AnnotatedSplit
from tasks.data.read import ThreeSplits


@dataclass(frozen=True, eq=False, slots=True)
class BoxedImage:
    """An annotated image.

    Attributes:
        id: id in the annotations.
        name: file name relative to the image folder.
        width: width in pixels.
        height: height in pixels.
        boxes: (N, 4), float64: left, top, right, bottom in pixels.
        labels: (N,), class of each box, from 0.
        crowd: (N,), True for a box around a crowd, which is neither a training target nor a possible miss.
    """

    id: int
    name: str
    width: int
    height: int
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    crowd: NDArray[np.bool_]


DetectionSplit = AnnotatedSplit[BoxedImage]


@dataclass(frozen=True, eq=False)
class DetectionData(ThreeSplits[DetectionSplit]):
    """An object detection set: dev for model selection, test for the score.

    Attributes:
        category_ids: the category id of each class in the annotations.
    """

    kind: ClassVar[str] = "object-detection"
    name: str
    classes: tuple[str, ...]
    category_ids: tuple[int, ...]
    train: DetectionSplit
    dev: DetectionSplit
    test: DetectionSplit
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.require_rows("images")

    def count_classes(self, split: DetectionSplit) -> list[int]:
        """Return the number of boxes of each class in a split, without crowds."""
        labels = np.concatenate([image.labels[~image.crowd] for image in split.images])
        counts: list[int] = np.bincount(labels, minlength=len(self.classes)).tolist()
        return counts

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image, and raise InputError if its size differs from the annotated one."""
        for split in self.splits().values():
            files = split.files()
            for index, image in enumerate(split.images):
                height, width, _ = files[index].shape
                if (width, height) != (image.width, image.height):
                    raise InputError(
                        f"{files.path(index)}: {width} × {height} pixels: "
                        f"expected {image.width} × {image.height} by {split.annotations.name}"
                    )
                progress()
