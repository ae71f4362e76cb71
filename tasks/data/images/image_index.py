"""The list of the images of a large set, made once per content of its files: a listing of ImageNet takes a minute."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.tasks.data.classification import ImageClassificationData, ImageSource, ImageSplit, Labels
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import three_splits
from dropbench.tasks.data.synthetic_cache import cache_folder, ensure_cached

# Part of the cache's name. Raise it when a reader lists other images for the same files.
VERSION = 1
SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class ImageList:
    """The images of one published split, in the order of their classes and names.

    Attributes:
        names: (N,) file names, as bytes.
        labels: (N,).
        places: (N, 3) number of the archive, offset and size in it; (0, 3) for images in files of their own.
    """

    names: NDArray[np.bytes_]
    labels: Labels
    places: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageIndex:
    """The images of the published train and test, and what is skipped.

    Attributes:
        classes: their names.
        skipped: number of files that are no images, and the first of them relative to the set's folder.
    """

    classes: tuple[str, ...]
    train: ImageList
    test: ImageList
    skipped: tuple[int, str] = (0, "")

    def save(self, folder: Path) -> None:
        """Write the index to an empty folder."""
        for split in SPLITS:
            for name, values in vars(getattr(self, split)).items():
                np.save(folder / f"{split}-{name}.npy", values, allow_pickle=False)
        content = {"classes": self.classes, "skipped": self.skipped}
        (folder / "index.json").write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ImageIndex:
        """Read an index, whose arrays all processes of a machine share; raises OSError or ValueError for damaged files.

        Raises KeyError or TypeError for files of another form.
        """
        content = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        names = ImageList.__dataclass_fields__
        train, test = (
            ImageList(**{name: np.load(folder / f"{split}-{name}.npy", "r", allow_pickle=False) for name in names})
            for split in SPLITS
        )
        count, first = content["skipped"]
        return cls(tuple(content["classes"]), train, test, (int(count), str(first)))


def read_indexed(
    source: Source,
    build: Callable[[], ImageIndex],
    images: Callable[[ImageList, str], ImageSource],
    notes: Sequence[str],
) -> ImageClassificationData:
    """Return the data of a set; its index is cached by the fingerprint of its files.

    Args:
        source: the files.
        build: lists the images; raises InputError if they do not fit together.
        images: opens the images of a list of the split "train" or "test".
        notes: added to those on the splits.
    """
    index = _cached(source, build)
    train, test = (
        ImageSplit(images(getattr(index, split), split), np.array(getattr(index, split).labels)) for split in SPLITS
    )
    splits, note = three_splits({"train": train, "test": test}, whole="train", seed=source.split_seed)
    count, first = index.skipped
    skipped = [f"skipped, not images (.jpg, .jpeg, .png): {count}, the first is {first}"] if count else []
    return ImageClassificationData(source.name, index.classes, *splits, (note, *notes, *skipped))


def _cached(source: Source, build: Callable[[], ImageIndex]) -> ImageIndex:
    try:
        fingerprint = source.fingerprint()
    except InputError:
        return build()  # whose errors are about images
    folder = cache_folder() / f"{source.dataset.name}-index-{VERSION}-{fingerprint}"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return ImageIndex.load(folder)
    if folder.is_dir():
        return build()  # the cache is damaged
    index: list[ImageIndex] = []

    def write(empty: Path) -> None:
        index.append(build())
        index[0].save(empty)

    ensure_cached(folder, write, f"the list of images of {source.name}")
    return index[0] if index else ImageIndex.load(folder)
