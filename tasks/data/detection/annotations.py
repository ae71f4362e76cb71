"""Image annotations in JSON files: splits and validation shared by the readers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Self, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError, check_text
from dropbench.tasks.data.classification import Rows
from dropbench.tasks.data.images.image_arrays import FileImages


@dataclass(frozen=True, eq=False, slots=True)
class AnnotatedImage:
    """An image with boxes.

    Attributes:
        name: file name relative to the image folder.
        boxes: (N, 4), float64: left, top, right, bottom in pixels.
        labels: (N,), class of each box, from 0.
    """

    name: str
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]


Image = TypeVar("Image", bound=AnnotatedImage)


@dataclass(frozen=True, eq=False)
class AnnotatedSplit(Generic[Image]):
    """Images of one annotation file.

    Attributes:
        annotations: the annotation file.
        folder: the folder of the images; None if only the annotations are present.
        images: annotated images in the order of the file.
    """

    annotations: Path
    folder: Path | None
    images: tuple[Image, ...]

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Rows) -> Self:
        """Return the images with those numbers, in that order."""
        return replace(self, images=tuple(self.images[row] for row in rows))

    def path(self, index: int) -> Path:
        """Return the file of an image; raise InputError if the images are absent."""
        return self._folder() / self.images[index].name

    def files(self) -> FileImages:
        """Return the images; raise InputError if they are absent."""
        return FileImages.from_names(self._folder(), [image.name for image in self.images])

    def _folder(self) -> Path:
        if self.folder is None:
            raise InputError(f"{self.annotations}: no images: this layout of the data set has annotations only")
        return self.folder


def hold_out_dev(
    split: AnnotatedSplit[Image], seed: int, max_dev: int | None = None
) -> tuple[AnnotatedSplit[Image], AnnotatedSplit[Image]]:
    """Split images into train and dev, a tenth of them but at most `max_dev`; `seed` decides which."""
    order = np.random.RandomState([seed, 0]).permutation(len(split))
    dev = order[: len(order) // 10][:max_dev]
    return split.take(np.setdiff1d(order, dev)), split.take(np.sort(dev))


def list_names(folder: Path) -> set[str]:
    """Return the names of the entries of a folder; raise InputError if it cannot be read."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None


class Entry:
    """An object of an annotation file; `location`, its file and index, starts every error message."""

    def __init__(self, content: Any, location: str) -> None:
        if not isinstance(content, dict):
            raise InputError(f"{location}: expected an object")
        self.content: dict[str, Any] = content
        self.location = location

    def error(self, message: str) -> InputError:
        """Return an error at the location of the entry."""
        return InputError(f"{self.location}: {message}")

    def given(self, key: str) -> str:
        """Return a key with its value as JSON, shortened, for an error message; "no KEY" if it is not there."""
        return f"{key} {json.dumps(self.content[key])[:60]}" if key in self.content else f"no {key}"

    def string(self, key: str) -> str:
        """Return a string that is not empty; raise InputError for anything else."""
        value = self.content.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(f"{self.given(key)}: expected a string")
        check_text(value, f"{self.location}: {key}")
        return value

    def integer(self, key: str, expected: str, minimum: int = 0, maximum: int = 2**53) -> int:
        """Return an integer in a range; raise InputError, which says what is `expected`, for anything else."""
        value = self.content.get(key)
        if not is_integer(value) or not minimum <= value <= maximum:
            raise self.error(f"{self.given(key)}: expected {expected}")
        return value

    def box(self, expected: str) -> list[float]:
        """Return the four numbers of bbox; raise InputError, which says what is `expected`, for anything else."""
        box = self.content.get("bbox")
        if not isinstance(box, list) or len(box) != 4 or not all(is_number(value) for value in box):
            raise self.error(f"{self.given('bbox')}: expected {expected}")
        return box

    def image_name(self, folder: Path | None, names: set[str]) -> str:
        """Return file_name; raise InputError if the image is not in or below a folder, whose entries are `names`."""
        name = self.string("file_name")
        path = PurePosixPath(name)
        is_below = not path.is_absolute() and ".." not in path.parts
        if folder is not None and name not in names and not (is_below and os.path.isfile(folder / path)):  # noqa: PTH113
            raise self.error(f"no image '{name[:80]}' in {folder}")
        return name


def is_number(value: Any) -> TypeGuard[float]:
    """Return True for a number of JSON that is finite as a float, too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63


def is_integer(value: Any) -> TypeGuard[int]:
    """Return True for an integer of JSON."""
    return isinstance(value, int) and not isinstance(value, bool)
