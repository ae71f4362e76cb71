"""Readers of CIFAR-10 and CIFAR-100, binary version: records of one or two label bytes and 3,072 pixel bytes.

The pixels of a record are three planes (red, green, blue) of 32 rows of 32. In CIFAR-100 a coarse label precedes the
fine label, which is the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.errors import InputError
from tasks.data.classification import ImageClassificationData, ImageSplit, Pixels
from tasks.data.images.image_arrays import ArrayImages, build_split
from tasks.data.lines import read_file, read_lines
from tasks.data.locate import Source
from tasks.data.splits import carve_dev, split_note

PLANES, SIDE = 3, 32
PIXELS = PLANES * SIDE * SIDE


def read_cifar10(source: Source) -> ImageClassificationData:
    """Read five training files, a test file, and the names; one label byte per record.

    Raises:
        InputError: a file is truncated, or a label is out of range.
    """
    *train, test, names = source.files
    return _read(source, train, test, names, label_bytes=1)


def read_cifar100(source: Source) -> ImageClassificationData:
    """Read train.bin, test.bin, and the fine names; two label bytes per record.

    Raises:
        InputError: a file is truncated, or a label is out of range.
    """
    train, test, names = source.files
    return _read(source, [train], test, names, label_bytes=2)


def _read(source: Source, train: Sequence[Path], test: Path, names: Path, label_bytes: int) -> ImageClassificationData:
    classes = validate_class_names(source, names, [line.strip() for line in read_lines(names) if line.strip()])
    batches = [read_records(file, label_bytes, len(classes)) for file in train]
    return build_data(source, classes, batches, read_records(test, label_bytes, len(classes)))


def validate_class_names(source: Source, path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the class names; raise InputError if their number is not that of the classes of the set."""
    if len(names) != source.dataset.classes:
        raise InputError(f"{path}: {len(names)} class names: expected {source.dataset.classes}")
    return tuple(names)


def build_data(
    source: Source, classes: tuple[str, ...], train: Sequence[ImageSplit], test: ImageSplit
) -> ImageClassificationData:
    """Return the data set of some training files and a test file; dev is 10 % of train."""
    pixels = np.concatenate([split.images.pixels for split in train if isinstance(split.images, ArrayImages)])
    joined = ImageSplit(ArrayImages(pixels), np.concatenate([split.labels for split in train]))
    train_split, dev = carve_dev(joined)
    notes = (split_note("dev is 10 % of the published train"),)
    return ImageClassificationData(source.name, classes, train_split, dev, test, notes)


def read_records(path: Path, label_bytes: int, classes: int) -> ImageSplit:
    """Return the records of one file; the last label byte is the class.

    Raises:
        InputError: the size is not a multiple of a record's, or a label is out of range.
    """
    content = read_file(path)
    record = label_bytes + PIXELS
    if len(content) % record:
        raise InputError(f"{path}: {len(content)} bytes: expected a multiple of {record}, as in the binary version")
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    labels = table[:, label_bytes - 1].astype(np.int64)
    return build_split(path, ArrayImages(channels_last(table[:, label_bytes:])), labels, classes)


def channels_last(rows: Pixels) -> Pixels:
    """Return pixels (N, 3072), plane by plane, as images (N, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, PLANES, SIDE, SIDE).transpose(0, 2, 3, 1))
