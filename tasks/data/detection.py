"""Images with boxes, whatever files they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.annotations import AnnotatedSplit


@dataclass(frozen=True, eq=False, slots=True)
class BoxedImage:
    """An image as its annotations describe it.

    Attributes:
        id: in the annotations.
        name: of its file, relative to the images' folder.
        width: in pixels.
        height: in pixels.
        boxes: (N, 4), float64: left, top, right, bottom in pixels.
        labels: (N,), class of each box, from 0.
        crowd: (N,), whether a box holds a crowd, which is neither trained nor counted as missed.
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
class DetectionData:
    """Boxes with classes, for detection.

    Attributes:
        category_ids: the number of each class in the annotations.
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
        for name, rows in self.rows().items():
            if not rows:
                raise InputError(f"data '{self.name}': no images for {name}: too few to be parted into train and dev")

    def splits(self) -> dict[str, DetectionSplit]:
        """The three splits by name."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def rows(self) -> dict[str, int]:
        """Number of images of each split."""
        return {name: len(split) for name, split in self.splits().items()}

    def class_rows(self) -> Mapping[str, Mapping[str, int]]:
        """Number of boxes of each class of each split, crowds left out."""
        found = {}
        for name, split in self.splits().items():
            labels = np.concatenate([image.labels[~image.crowd] for image in split.images])
            counts = np.bincount(labels, minlength=len(self.classes)).tolist()
            found[name] = dict(zip(self.classes, counts, strict=True))
        return found

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image, and hold its size beside the annotations'."""
        for split in self.splits().values():
            files = split.files()
            for index, image in enumerate(split.images):
                height, width, _ = files[index].shape
                if (width, height) != (image.width, image.height):
                    raise InputError(
                        f"{files.path(index)}: {width} × {height} pixels: "
                        f"expected {image.width} × {image.height}, as {split.annotations.name} says"
                    )
                progress()
