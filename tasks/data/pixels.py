"""Images in memory, and images in files that are opened when asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.classification import ImageSplit, Labels, Pixels, Rows

SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Images of one size in memory: `pixels` (N, H, W, C) uint8."""

    pixels: Pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Pixels:
        image: Pixels = self.pixels[index]
        return image

    def take(self, rows: Rows) -> ArrayImages:
        """The images of those numbers, in that order."""
        return ArrayImages(self.pixels[rows])


@dataclass(frozen=True, eq=False)
class FileImages:
    """Images in files below a folder, decoded as RGB when asked for.

    Attributes:
        names: (N,) file names relative to the folder, as bytes: a million of them are one array, which data loading
            processes share instead of copying.
    """

    folder: Path
    names: NDArray[np.bytes_]

    @classmethod
    def of(cls, folder: Path, names: Sequence[str]) -> FileImages:
        """From names as text."""
        return cls(folder, np.array([os.fsencode(name) for name in names], dtype=np.bytes_))

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """The file of an image."""
        return self.folder / os.fsdecode(bytes(self.names[index]))

    def __getitem__(self, index: int) -> Pixels:
        """(H, W, 3) uint8. Raises InputError, with the file's name, where it is empty, cut short or no image."""
        from PIL import Image, UnidentifiedImageError

        path = self.path(index)
        try:
            # Only the decoders that the published sets need: fewer ways in for a file from elsewhere.
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                return np.array(image.convert("RGB"))  # a copy: PIL's own buffer is read-only
        except UnidentifiedImageError:
            told = "is empty" if path.stat().st_size == 0 else "is no JPEG or PNG"
            raise InputError(f"{path}: the image {told}") from None
        except FileNotFoundError:
            raise InputError(f"{path}: the image is not there") from None
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InputError(f"{path}: the image is damaged: {error}") from None

    def take(self, rows: Rows) -> FileImages:
        """The images of those numbers, in that order."""
        return FileImages(self.folder, self.names[rows])


def checked_split(path: Path, images: ArrayImages, labels: Labels, classes: int) -> ImageSplit:
    """A split from a file in which images and labels stand side by side.

    Raises:
        InputError: there are none, their numbers differ, or a label is out of range; says which image.
    """
    if not len(images):
        raise InputError(f"{path}: no images")
    if len(images) != len(labels):
        raise InputError(f"{path}: {len(images)} images, but {len(labels)} labels")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise InputError(f"{path}: image {wrong[0] + 1} has label {labels[wrong[0]]}: expected 0 to {classes - 1}")
    return ImageSplit(images, labels)
