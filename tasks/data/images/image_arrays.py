"""Images in files that are decoded on access, and splits of images in memory."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular
from dropbench.tasks.data.classification import ImageSplit, Labels, Pixels, Rows

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

SUFFIXES = (".jpg", ".jpeg", ".png")

MAX_PIXELS = 2**28 // 3
"""An image with more pixels (a quarter of a GiB as RGB) is refused by its header: a file of a few KB can claim to be
huge, and every data loading process would allocate memory for it. The limit is Pillow's own."""

ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)
"""The tag of EXIF data, and its values by which width and height change places."""

ERRORS = (OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, struct.error, zlib.error)
"""Errors that Pillow's decoders raise for damaged files, observed or by their source."""


@dataclass(frozen=True, eq=False)
class FileImages:
    """Images in files below a folder, decoded as RGB on access.

    Attributes:
        names: (N,) file names relative to the folder, as bytes. They are one array, which data loading processes share
            instead of copying a million strings.
    """

    folder: Path
    names: NDArray[np.bytes_]

    @classmethod
    def from_names(cls, folder: Path, names: Sequence[str]) -> Self:
        """Return the images with those file names."""
        return cls.of(folder, np.array([os.fsencode(name) for name in names], dtype=np.bytes_))

    @classmethod
    def of(cls, folder: Path, names: NDArray[np.bytes_], **more: Any) -> Self:
        """Return the images with those encoded file names; `more` are the other fields of a subclass."""
        # Pillow warns of odd metadata, which no pixel depends on, and of large sizes, which `__getitem__` checks.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        return cls(folder, names, **more)

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self.folder / os.fsdecode(bytes(self.names[index]))

    def open(self, index: int) -> IO[bytes]:
        """Open the file of an image."""
        return open_regular(self.path(index))

    def __getitem__(self, index: int) -> Pixels:
        """Return an image, (H, W, 3) uint8.

        The first bytes of the file, not its suffix, decide the format. Grayscale and CMYK images become RGB, and
        transparency is dropped, which shows the colors below it. The orientation in EXIF data is ignored, as by the
        readers of torchvision and timm, which produced the published results.

        Raises:
            InputError: the file is empty, damaged, too large or not an image; the message names it.
        """
        from PIL import Image, UnidentifiedImageError

        path = self.path(index)
        try:
            # Only the decoders that the published sets need: fewer are a smaller attack surface.
            with self.open(index) as file, Image.open(file, formats=("JPEG", "PNG")) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                return _rgb(image)
        except UnidentifiedImageError:
            with self.open(index) as file:
                raise InputError(f"{path}: the image {_unidentified(file.read(8))}") from None
        except FileNotFoundError:
            raise InputError(f"{path}: image not found") from None
        except Image.DecompressionBombError:
            raise InputError(f"{path}: the image is too large: expected at most {MAX_PIXELS:,} pixels") from None
        except ERRORS as error:
            if isinstance(error, OSError) and error.strerror:
                raise InputError(f"{path}: the image cannot be read: {error.strerror}") from None
            message = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{path}: the image is damaged: {message}") from None

    def take(self, rows: Rows) -> Self:
        """Return the images with those numbers, in that order."""
        return replace(self, names=self.names[rows])


def displayed_size(path: Path, pixels: Pixels) -> tuple[int, int]:
    """Return the width and the height of an image as it is displayed: turned by the orientation in its EXIF data.

    `pixels` (H, W, 3) are those that `FileImages` has decoded from the file.
    """
    from PIL import Image

    height, width, _ = pixels.shape
    with suppress(*ERRORS), Image.open(path, formats=("JPEG", "PNG")) as image:
        if image.getexif().get(ORIENTATION) in TURNED:
            return height, width
    return width, height


def _unidentified(start: bytes) -> str:
    if not start:
        return "is empty"
    is_header = start.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))
    return "is damaged: its header cannot be read" if is_header else "is neither JPEG nor PNG"


def _rgb(image: PillowImage) -> Pixels:
    """Return (H, W, 3) uint8 in memory of its own."""
    if image.mode.startswith("I"):
        # 16-bit grayscale, which Pillow's own conversion clips.
        gray = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(gray[..., None], 3, axis=2)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # convert would copy an RGB image


def build_split(path: Path, images: Pixels, labels: Labels, classes: int) -> ImageSplit:
    """Return the split of images (N, H, W, C) with labels (N,); raise InputError for a label that is out of range."""
    invalid = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(invalid):
        raise InputError(f"{path}: image {invalid[0] + 1} has label {labels[invalid[0]]}: expected 0 to {classes - 1}")
    return ImageSplit(images, labels)
