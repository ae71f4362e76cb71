"""Classification data: rows with one label each, in three splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.tasks.data.read import ThreeSplits

Labels = NDArray[np.int64]
Rows = NDArray[np.int64]
Pixels = NDArray[np.uint8]

MAX_DAMAGED = 6
"""Maximum number of damaged images named in an error message."""


class ImageSource(Protocol):
    """Images by number: an array (N, H, W, C) uint8, or files (`FileImages`) with their own `take`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Pixels:
        """Return one image, (H, W, C) uint8; raise InputError if its file is damaged."""
        ...


class RowSplit:
    """Base of splits: dataclasses whose fields have an entry per row."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def take(self, rows: Rows) -> Self:
        """Return the rows with those numbers, in that order."""
        return type(self)(**{name: _take(values, rows) for name, values in vars(self).items()})


def _take(values: Any, rows: Rows) -> Any:
    if isinstance(values, dict):
        return {name: _take(column, rows) for name, column in values.items()}
    if isinstance(values, np.ndarray):
        return values[rows]
    return tuple(values[row] for row in rows) if isinstance(values, tuple) else values.take(rows)


class LabeledSplit(RowSplit):
    """Rows of any kind with one label each; `labels` (N,) counts classes from 0."""

    labels: Labels


@dataclass(frozen=True, eq=False)
class TextSplit(LabeledSplit):
    """Texts with single spaces."""

    texts: tuple[str, ...]
    labels: Labels


@dataclass(frozen=True, eq=False)
class ChoiceSplit(LabeledSplit):
    """Texts, each with the same number of possible continuations, and the number of the right one; single spaces."""

    texts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    labels: Labels


@dataclass(frozen=True, eq=False)
class ImageSplit(LabeledSplit):
    """Images of one set."""

    images: ImageSource
    labels: Labels


S = TypeVar("S", bound=LabeledSplit)


@dataclass(frozen=True, eq=False)
class ClassificationData(ThreeSplits[S]):
    """A classification set; attributes as in `Data`.

    Raises:
        InputError: a split is empty, a label has no class, or all rows of train have the same one.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, split in self.splits().items():
            if not 0 <= np.min(split.labels) <= np.max(split.labels) < len(self.classes):
                raise InputError(f"data '{self.name}': labels of {name}: expected 0 to {len(self.classes) - 1}")
        if np.min(self.train.labels) == np.max(self.train.labels):
            only = self.classes[self.train.labels[0]]
            raise InputError(f"data '{self.name}': all rows of train are '{only}': expected two classes or more")

    def count_classes(self, split: S) -> list[int]:
        return cast(list[int], np.bincount(split.labels, minlength=len(self.classes)).tolist())


class TextClassificationData(ClassificationData[TextSplit]):
    """Texts with one label each."""

    kind: ClassVar[str] = "text-classification"


class ChoiceData(ClassificationData[ChoiceSplit]):
    """Texts with choices; the classes are names of the choices."""

    kind: ClassVar[str] = "multiple-choice"


class ImageClassificationData(ClassificationData[ImageSplit]):
    """Images with one label each."""

    kind: ClassVar[str] = "image-classification"

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image; the error reports the first damaged ones and counts all of them."""
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
            others = "".join(f"; {error}" for error in damaged[1:MAX_DAMAGED])
            raise InputError(f"{damaged[0]}" + (f"; and {more} more{others}" if more else ""))
