"""Images in memory, and images in files that are opened when asked for."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.classification import ImageSplit, Labels, Pixels, Rows

if TYPE_CHECKING:
    from PIL.Image import Image as Opened

SUFFIXES = (".jpg", ".jpeg", ".png")

PIXELS = 2**28 // 3
"""An image with more (a quarter of a GiB as RGB) is refused by its header: a file of a few KB can claim to be huge, and
every process that loads data would need memory for it. The limit is Pillow's own."""

_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    struct.error,
    zlib.error,
)
"""What Pillow's decoders were seen to raise, or may by their source, where the bytes are not what they should be."""


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
        # Pillow warns of odd meta data, which no pixel depends on, and of sizes, which are looked at below.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        return cls(folder, np.array([os.fsencode(name) for name in names], dtype=np.bytes_))

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """The file of an image."""
        return self.folder / os.fsdecode(bytes(self.names[index]))

    def __getitem__(self, index: int) -> Pixels:
        """(H, W, 3) uint8. Raises InputError, with the file's name, where it is empty, damaged, too large or no image.

        The file's bytes say what it is, not its suffix. Grey and CMYK images become RGB, and transparency is left out,
        with the colours beneath it showing. A note on how the camera was held (EXIF) turns nothing: torchvision's and
        timm's readers, by which published results came about, do not heed it either.
        """
        from PIL import Image, UnidentifiedImageError

        path = self.path(index)
        try:
            # Only the decoders that the published sets need: fewer ways in for a file from elsewhere.
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                if image.width * image.height > PIXELS:
                    raise Image.DecompressionBombError
                return _rgb(image)
        except UnidentifiedImageError:
            raise InputError(f"{path}: the image {_unidentified(path)}") from None
        except FileNotFoundError:
            raise InputError(f"{path}: the image is not there") from None
        except Image.DecompressionBombError:
            raise InputError(f"{path}: the image is too large: expected at most {PIXELS:,} pixels") from None
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.strerror:
                raise InputError(f"{path}: the image cannot be read: {error.strerror}") from None
            what = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{path}: the image is damaged: {what}") from None

    def take(self, rows: Rows) -> FileImages:
        """The images of those numbers, in that order."""
        return FileImages(self.folder, self.names[rows])


def _unidentified(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(8)
    if not start:
        return "is empty"
    known = start.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))
    return "is damaged: its header cannot be read" if known else "is no JPEG or PNG"


def _rgb(image: Opened) -> Pixels:
    """(H, W, 3) uint8, of which the caller alone has the memory."""
    if image.mode.startswith("I"):
        # 16 bits of grey, of which Pillow's own conversion cuts off the upper ones.
        grey = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # RGB would be copied once more


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
