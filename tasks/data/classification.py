"""What the readers of classification sets return: rows with one label each, in three splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError

Labels = NDArray[np.int64]
Rows = NDArray[np.int64]
Pixels = NDArray[np.uint8]

SHOWN = 6
"""Damaged images that are told of in one line."""


class ImageSource(Protocol):
    """Images by number, in memory or on the disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Pixels:
        """One image, (H, W, C) uint8. Raises InputError where a file is damaged."""
        ...

    def take(self, rows: Rows) -> ImageSource:
        """The images of those numbers, in that order."""
        ...


@dataclass(frozen=True, eq=False)
class TextSplit:
    """Texts with white space made single; `labels` (N,) counts classes from 0."""

    texts: tuple[str, ...]
    labels: Labels

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Rows) -> Self:
        """The rows of those numbers, in that order."""
        return type(self)(tuple(self.texts[row] for row in rows), self.labels[rows])


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images of one set; `labels` (N,) counts classes from 0."""

    images: ImageSource
    labels: Labels

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Rows) -> Self:
        """The rows of those numbers, in that order."""
        return type(self)(self.images.take(rows), self.labels[rows])


class LabelledSplit(Protocol):
    """Rows of any kind with one label each."""

    @property
    def labels(self) -> Labels: ...

    def __len__(self) -> int: ...

    def take(self, rows: Rows) -> Self:
        """The rows of those numbers, in that order."""
        ...


S = TypeVar("S", bound=LabelledSplit)


@dataclass(frozen=True, eq=False)
class ClassificationData(Generic[S]):
    """A classification set: model selection on dev, the score on test.

    Attributes:
        classes: names in the order of their numbers.
        notes: what a reader of results should know: how the splits were made, which rows were left out.

    Raises:
        InputError: a split has no rows.
    """

    kind: ClassVar[str]

    name: str
    classes: tuple[str, ...]
    train: S
    dev: S
    test: S
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, rows in self.rows().items():
            if not rows:
                raise InputError(
                    f"data '{self.name}': no rows for {name}: too few to be parted into train, dev and test"
                )

    def splits(self) -> dict[str, S]:
        """The three splits by name."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def rows(self) -> dict[str, int]:
        """Number of rows of each split."""
        return {name: len(split) for name, split in self.splits().items()}

    def class_rows(self) -> dict[str, dict[str, int]]:
        """Number of rows of each class of each split."""
        counts = {
            name: np.bincount(split.labels, minlength=len(self.classes)).tolist()
            for name, split in self.splits().items()
        }
        return {name: dict(zip(self.classes, rows, strict=True)) for name, rows in counts.items()}

    def verify(self, progress: Callable[[], None]) -> None:
        """Read what reading the set has put off, calling `progress` after each row; raises InputError for damage."""


@dataclass(frozen=True, eq=False)
class TextClassificationData(ClassificationData[TextSplit]):
    """Texts with one label each."""

    kind: ClassVar[str] = "text-classification"


@dataclass(frozen=True, eq=False)
class ImageClassificationData(ClassificationData[ImageSplit]):
    """Images with one label each."""

    kind: ClassVar[str] = "image-classification"

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image; the error tells of the first damaged one, and names some of the others."""
        damaged: list[InputError] = []
        for split in self.splits().values():
            for index in range(len(split)):
                try:
                    split.images[index]
                except InputError as error:
                    damaged.append(error)
                progress()
        if damaged:
            more = len(damaged) - 1
            others = "".join(f"; {error}" for error in damaged[1:SHOWN])
            raise InputError(f"{damaged[0]}" + (f"; and {more} more{others}" if more else ""))
