"""Dense label maps for a folder of images, as published for ImageNet's training images by Jiang et al. (2021).

``<folder of the set>/label_top5_train_nfnet/<class>/<image>.pt`` contains, for ``train/<class>/<image>.JPEG``, one
tensor (2, 5, rows, columns): the five largest scores of another network at each position of the image, and their
classes, both in half precision. The published maps come from an NFNet-F6 and are 18 × 18.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular
from dropbench.tasks.data.classification import ImageSource
from dropbench.tasks.data.images.image_arrays import FileImages
from dropbench.tasks.data.locate import Source

FOLDER = "label_top5_train_nfnet"
HOME = "https://github.com/zihangJiang/TokenLabeling"


def locate_maps(source: Source) -> Path:
    """Return the folder of the maps of a set; raise InputError, which says how to get the maps, if there is none."""
    folder = source.folder / FOLDER
    if not folder.is_dir():
        raise InputError(
            f"token_labels=maps: no folder {folder}: expected <class>/<image>.pt in it for each training image, "
            f"from {HOME}; for VOLO alone, `--model NAME --set token_labels=image` needs none"
        )
    return folder


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """Maps of the images of a split, in the order of the images, read on access.

    Attributes:
        names: (N,) file names relative to the folder, as bytes.
        shape: shape of every map, (2, K, rows, columns).
        classes: number of classes of the set.
    """

    folder: Path
    names: NDArray[np.bytes_]
    shape: tuple[int, ...]
    classes: int

    @classmethod
    def for_images(cls, folder: Path, images: ImageSource, classes: int) -> LabelMaps:
        """Return the maps of some images; raise InputError if one has no map, or the first map is not valid."""
        if not isinstance(images, FileImages):
            raise InputError("token_labels=maps: expected a data set with one file per image, such as ImageNet")
        names = np.array([os.fsencode(_map_name(os.fsdecode(bytes(name)))) for name in images.names])
        existing = set(_names(folder))
        missing = [name for name in names.tolist() if name not in existing]
        if missing:
            raise InputError(
                f"{folder}: {len(missing):,} of {len(names):,} training images have no map, "
                f"the first is {os.fsdecode(missing[0])}: expected all of them, from {HOME}"
            )
        first = cls(folder, names, (), classes)
        return cls(folder, names, tuple(first[0].shape), classes)

    def __getitem__(self, index: int) -> Tensor:
        """Return the scores and their classes, (2, K, rows, columns) float32; raise InputError if they are invalid."""
        path = self.folder / os.fsdecode(bytes(self.names[index]))
        try:
            with open_regular(path) as file:
                loaded = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch has no specific error for a damaged file
            raise InputError(f"{path}: not a label map: {' '.join(str(error).split())[:160]}") from None
        shape = tuple(loaded.shape) if isinstance(loaded, Tensor) else ()
        is_valid = shape == self.shape if self.shape else len(shape) == 4 and shape[0] == 2 and 0 not in shape
        if not is_valid:
            raise InputError(f"{path}: a label map of shape {shape}: expected {self.shape or '(2, 5, rows, columns)'}")
        maps: Tensor = loaded.float()
        scores, numbers = maps
        if not torch.isfinite(scores).all():
            raise InputError(f"{path}: a score is not finite: expected finite numbers")
        unknown = numbers[~((numbers >= 0) & (numbers < self.classes) & (numbers == numbers.floor()))]
        if len(unknown):
            raise InputError(
                f"{path}: class {float(unknown[0]):g}: expected a class of the training set, 0 to {self.classes - 1}"
            )
        return maps


def _map_name(image: str) -> str:
    """Return ``n01/n01_7.pt`` for ``n01/n01_7.JPEG`` or ``n01/images/n01_7.JPEG``."""
    return f"{image.partition('/')[0]}/{image.rpartition('/')[2].rpartition('.')[0]}.pt"


def _names(folder: Path) -> Iterator[bytes]:
    try:
        for subfolder in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()):
            for entry in os.scandir(folder / subfolder):
                yield os.fsencode(f"{subfolder}/{entry.name}")
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}") from None
