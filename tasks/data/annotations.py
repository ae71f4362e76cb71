"""Annotations of images in JSON files: what their readers have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

import numpy as np

from harness.errors import InputError
from tasks.data.pixels import FileImages
from tasks.data.splits import SPLIT_SEED


class Named(Protocol):
    """An image as its annotations describe it; `name` is its file's, relative to the images' folder."""

    @property
    def name(self) -> str: ...


Image = TypeVar("Image", bound=Named)


@dataclass(frozen=True, eq=False)
class AnnotatedSplit(Generic[Image]):
    """Images of one file of annotations.

    Attributes:
        annotations: the file.
        folder: where the images lie; None where they are not there and only annotations can be used.
        images: in the file's order.
    """

    annotations: Path
    folder: Path | None
    images: tuple[Image, ...]

    def __len__(self) -> int:
        return len(self.images)

    def path(self, index: int) -> Path:
        """The file of an image; raises InputError where the images are not there."""
        return self._folder() / self.images[index].name

    def files(self) -> FileImages:
        """The images' files; raises InputError where they are not there."""
        return FileImages.of(self._folder(), [image.name for image in self.images])

    def _folder(self) -> Path:
        if self.folder is None:
            raise InputError(f"{self.annotations}: its images are not there")
        return self.folder


def held_out(images: Sequence[Image], most: int | None = None) -> tuple[tuple[Image, ...], tuple[Image, ...]]:
    """Train and dev: all but a tenth of the images, and that tenth, or `most`; the same for every trial."""
    order = np.random.RandomState([SPLIT_SEED, 0]).permutation(len(images))
    dev = set(order[: min(len(order) // 10, len(order) if most is None else most)].tolist())
    kept, held = (
        tuple(image for place, image in enumerate(images) if (place in dev) == chosen) for chosen in (False, True)
    )
    return kept, held


def read_json(path: Path) -> Any:
    """The content of a file; raises InputError for what is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: no valid JSON: {' '.join(str(error).split())}") from None


def file_names(folder: Path) -> set[str]:
    """The names of what lies in a folder; raises InputError where it cannot be read."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None


def check_image(name: str, folder: Path, there: set[str], where: str) -> None:
    """See whether an image is among the names in its folder, or below it; a name cannot lead out of the folder.

    Raises:
        InputError: it is not there; begins with `where`.
    """
    parts = PurePosixPath(name)
    below = not parts.is_absolute() and ".." not in parts.parts
    if name not in there and not (below and (folder / parts).is_file()):
        raise InputError(f"{where}: no image '{name[:80]}' in {folder}")


def text(entry: dict[str, Any], key: str, where: str) -> str:
    """A text that is not empty; raises InputError for anything else."""
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {key} {str(value)[:40]}: expected a text")
    return value


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number, as JSON has them."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
