"""Dense label maps beside a folder of images, as Jiang et al. (2021) publish them for ImageNet's training images.

``<folder of the set>/label_top5_train_nfnet/<class>/<image>.pt`` holds, for ``train/<class>/<image>.JPEG``, one tensor
(2, 5, rows, columns): the five largest scores of another network at each place of the image, and their classes, both
in half precision. The published ones come from an NFNet-F6 and are 18 × 18.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.errors import InputError
from tasks.data.classification import ImageSource
from tasks.data.fingerprint import fingerprint
from tasks.data.locate import Source
from tasks.data.pixels import FileImages

FOLDER = "label_top5_train_nfnet"
HOME = "https://github.com/zihangJiang/TokenLabeling"


def locate_maps(source: Source) -> Path:
    """The folder of the maps of a set.

    Raises:
        InputError: there is none; says where it was looked for, and where to get it.
    """
    folder = source.folder / FOLDER
    if not folder.is_dir():
        raise InputError(
            f"token_labels=maps: no folder {folder}: expected <class>/<image>.pt in it for each training image, "
            f"from {HOME}; or, for VOLO alone, --set token_labels=image, which needs no files"
        )
    return folder


def maps_fingerprint(folder: Path) -> str:
    """12 hex digits that change with the files, as in `tasks.data.fingerprint`; taken once, or when it changes."""
    return _fingerprint(folder, folder.stat().st_mtime_ns)


@lru_cache
def _fingerprint(folder: Path, stamp: int) -> str:
    return fingerprint(folder, [folder])


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """The maps of a split's images, by the images' numbers, read when asked for.

    Attributes:
        names: (N,) file names relative to the folder, as bytes.
        shape: of every map: (2, K, rows, columns).
        classes: how many classes the set has.
    """

    folder: Path
    names: NDArray[np.bytes_]
    shape: tuple[int, ...]
    classes: int

    @classmethod
    def of(cls, folder: Path, images: ImageSource, classes: int) -> LabelMaps:
        """The maps of those images.

        Raises:
            InputError: the images are no files, some have no map, or the first map is none.
        """
        if not isinstance(images, FileImages):
            raise InputError("token_labels=maps: expected images in files, such as ImageNet's")
        names = np.array([os.fsencode(_map_name(os.fsdecode(bytes(name)))) for name in images.names])
        there = set(_names(folder))
        missing = [name for name in names.tolist() if name not in there]
        if missing:
            raise InputError(
                f"{folder}: {len(missing):,} of {len(names):,} training images have no map, "
                f"the first is {os.fsdecode(missing[0])}: expected all of them, from {HOME}"
            )
        first = cls(folder, names, (), classes)
        return cls(folder, names, tuple(first[0].shape), classes)

    def __getitem__(self, index: int) -> Tensor:
        """(2, K, rows, columns) float32: scores, and their classes.

        Raises:
            InputError: the file is damaged, of another shape than the first one, or names a class that is not there.
        """
        path = self.folder / os.fsdecode(bytes(self.names[index]))
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch has no error of its own for a damaged file
            raise InputError(f"{path}: no label map: {' '.join(str(error).split())[:160]}") from None
        shape = tuple(found.shape) if isinstance(found, Tensor) else ()
        fits = shape == self.shape if self.shape else len(shape) == 4 and shape[0] == 2 and 0 not in shape
        if not fits:
            raise InputError(f"{path}: a label map of shape {shape}: expected {self.shape or '(2, 5, rows, columns)'}")
        maps: Tensor = found.float()
        scores, numbers = maps
        if not torch.isfinite(scores).all():
            raise InputError(f"{path}: a score is no finite number")
        wrong = numbers[~((numbers >= 0) & (numbers < self.classes) & (numbers == numbers.floor()))]
        if len(wrong):
            raise InputError(
                f"{path}: class {float(wrong[0]):g}: expected 0 to {self.classes - 1}, the classes of the training set"
            )
        return maps


def _map_name(image: str) -> str:
    """``n01/n01_7.JPEG``, or ``n01/images/n01_7.JPEG`` → ``n01/n01_7.pt``."""
    return f"{image.partition('/')[0]}/{image.rpartition('/')[2].rpartition('.')[0]}.pt"


def _names(folder: Path) -> Iterator[bytes]:
    try:
        for below in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()):
            for entry in os.scandir(folder / below):
                yield os.fsencode(f"{below}/{entry.name}")
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}") from None
