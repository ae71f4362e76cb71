"""Reader of image folders in tar archives, such as WebDataset's shards: few large files instead of many small ones.

The archives have ``<class>/<image>.JPEG``, as those that ``tar`` makes of the class folders, or ``<image>.jpg`` and
``<image>.cls``, the number of its class, as WebDataset's. Images are read by their offsets, so that they have the order
of image folders, and any of them can be read next.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError, check_text
from dropbench.harness.files import open_regular
from dropbench.tasks.data.classification import ImageClassificationData, Rows
from dropbench.tasks.data.images.image_arrays import SUFFIXES, FileImages
from dropbench.tasks.data.images.image_index import ImageIndex, ImageList, read_indexed
from dropbench.tasks.data.locate import Source

CLASS = ".cls"
MAX_CLASS_BYTES = 20
"""Of a file with the number of a class."""


@dataclass(frozen=True, eq=False)
class ShardImages(FileImages):
    """Images in archives, decoded as RGB on access.

    Attributes:
        shards: the archives.
        places: (N, 3) number of the archive, offset and size in it.
    """

    shards: tuple[Path, ...]
    places: NDArray[np.int64]

    def path(self, index: int) -> Path:
        """Return the archive of an image, followed by the image's name in it."""
        return self.shards[int(self.places[index, 0])] / os.fsdecode(bytes(self.names[index]))

    def open(self, index: int) -> IO[bytes]:
        """Return the content of an image; raise InputError if its archive is shorter than it was."""
        shard, offset, size = self.places[index].tolist()
        with open_regular(self.shards[shard]) as file:
            file.seek(offset)
            content = file.read(size)
        if len(content) < size:
            raise InputError(f"{self.shards[shard]}: the archive is truncated: copy or download it again")
        return io.BytesIO(content)

    def take(self, rows: Rows) -> Self:
        """Return the images with those numbers, in that order."""
        return replace(self, names=self.names[rows], places=self.places[rows])


class Member(NamedTuple):
    """A file in an archive: its name, and the number of the archive, offset and size."""

    name: str
    place: tuple[int, int, int]


def read(source: Source) -> ImageClassificationData:
    """Read the archives of train and those of val, whose images are test.

    Raises:
        InputError: an archive is damaged or truncated, an image has no class, or a class has no images.
    """
    train, test = splits_of(source)
    shards = {"train": train, "test": test}

    def images(listed: ImageList, split: str) -> ShardImages:
        return ShardImages.of(source.folder, listed.names, shards=tuple(shards[split]), places=listed.places)

    return read_indexed(source, lambda: list_images(train, test), images, ["test is val"])


def splits_of(source: Source) -> tuple[list[Path], list[Path]]:
    """Return the archives of train and of val."""
    train = [path for path in source.files if "train" in path.name]
    return train, [path for path in source.files if path not in train]


def list_images(train: Sequence[Path], test: Sequence[Path]) -> ImageIndex:
    """List the images of both splits in the order of their classes and names, as in folders; raise as `read`."""
    rows, skipped = zip(*(labeled_images(shards) for shards in (train, test)), strict=True)
    names = [sorted({label for label, _ in each}, key=_class_key) for each in rows]
    if names[0] != names[1]:
        differences = sorted(set(names[0]) ^ set(names[1]))
        raise InputError(f"{test[0]}: class '{differences[0]}' is in train or val only: expected the same in both")
    number = {name: label for label, name in enumerate(names[0])}
    lists = []
    for each in rows:
        each.sort(key=lambda row: (number[row[0]], row[1].name.rpartition("/")[2]))
        encoded = np.array([os.fsencode(member.name) for _, member in each], np.bytes_)
        places = np.array([member.place for _, member in each], np.int64)
        lists.append(ImageList(encoded, np.array([number[label] for label, _ in each], np.int64), places))
    others = [*chain.from_iterable(skipped)]
    return ImageIndex(tuple(names[0]), lists[0], lists[1], (len(others), others[0] if others else ""))


def _class_key(name: str) -> tuple[int, str]:
    """Sort numbers by value, then names by alphabet."""
    return (int(name), "") if name.isdecimal() else (2**63, name)


def labeled_images(shards: Sequence[Path]) -> tuple[list[tuple[str, Member]], list[str]]:
    """Return the class and the place of each image in some archives, and the names of other files."""
    rows: list[tuple[str, Member]] = []
    skipped: list[str] = []
    for number, shard in enumerate(shards):
        images: list[Member] = []
        classes: dict[str, str] = {}
        for name, place, label in members(shard, number):
            if label is not None:
                classes[name.removesuffix(CLASS)] = label
            elif name.lower().endswith(SUFFIXES):
                images.append(Member(name, place))
            else:
                skipped.append(f"{shard.name}/{name}")
        for member in images:
            path, _, name = member.name.rpartition("/")
            folder = path.removesuffix("/images").rpartition("/")[2]
            label = classes.get(member.name.rpartition(".")[0]) or folder
            if not label:
                raise InputError(
                    f"{shard}: no class for '{member.name[:80]}': expected <class>/<image>, or a file <image>{CLASS}"
                )
            check_text(label, f"{shard}: class")
            rows.append((label, Member(f"{folder}/{name}" if folder else name, member.place)))
    if not rows:
        raise InputError(f"{shards[0]}: no images: expected files ending in {', '.join(SUFFIXES)}")
    return rows, skipped


def members(shard: Path, number: int) -> Iterator[tuple[str, tuple[int, int, int], str | None]]:
    """Yield name, place and content as a class of each file of an archive; None: the file is no class.

    Raises:
        InputError: the archive is damaged or truncated, or a class is no number.
    """
    try:
        with open_regular(shard) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            archive_members: Any = vars(archive)["members"]
            for member in archive:
                name = member.name.removeprefix("./")
                if not member.isreg() or member.issparse() or name.rpartition("/")[2].startswith("."):
                    continue
                label = None
                if name.endswith(CLASS):
                    file.seek(member.offset_data)
                    label = file.read(min(member.size, MAX_CLASS_BYTES)).decode("ascii", "replace").strip()
                    if not label.isdecimal():
                        raise InputError(f"{shard}: {name}: '{label}' is no number of a class")
                yield name, (number, member.offset_data, member.size), label
                archive_members.clear()  # a million of them are a GiB
            file.seek(archive.offset)
            end = file.read(tarfile.BLOCKSIZE)
        if end.count(0) < tarfile.BLOCKSIZE:  # tarfile takes what follows the last valid file for the end
            raise tarfile.ReadError("unexpected end of data" if len(end) < tarfile.BLOCKSIZE else "bad header")
    except tarfile.TarError as error:
        is_short = any(word in str(error) for word in ("unexpected end", "truncated"))
        problem = "is truncated" if is_short else f"is damaged ({error})"
        raise InputError(f"{shard}: the archive {problem}: copy or download it again") from None
    except OSError as error:
        raise InputError(f"{shard}: {error.strerror or error}") from None
