"""CIFAR-10 and CIFAR-100, Python version: pickled dictionaries, read without running anything that they name.

A batch has `data` (N, 3072) uint8, plane by plane, and a list of labels (`labels`, or `fine_labels` for CIFAR-100).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.errors import InputError
from tasks.data.cifar_binary import PIXELS, assembled, channels_last, checked_names
from tasks.data.classification import ImageClassificationData, ImageSplit
from tasks.data.pixels import ArrayImages, checked_split
from tasks.data.plain_pickle import read_plain_pickle

if TYPE_CHECKING:
    from tasks.data.locate import Source


def read_cifar10(source: Source) -> ImageClassificationData:
    """Five training batches, a test batch, and batches.meta.

    Raises:
        InputError: a file is damaged, asks for code to be run, or a label is out of range.
    """
    *train, test, meta = source.files
    return _read(source, train, test, meta, "labels", "label_names")


def read_cifar100(source: Source) -> ImageClassificationData:
    """train, test, and meta; the fine labels are the classes.

    Raises:
        InputError: a file is damaged, asks for code to be run, or a label is out of range.
    """
    train, test, meta = source.files
    return _read(source, [train], test, meta, "fine_labels", "fine_label_names")


def _read(
    source: Source, train: Sequence[Path], test: Path, meta: Path, labels: str, names: str
) -> ImageClassificationData:
    listed = read_plain_pickle(meta).get(names)
    if not isinstance(listed, list) or not all(isinstance(name, str | bytes) for name in listed):
        raise InputError(f"{meta}: no list '{names}': expected the class names")
    decoded = [name.decode("latin-1") if isinstance(name, bytes) else name for name in listed]
    classes = checked_names(source, meta, decoded)
    read = [read_batch(file, labels, len(classes)) for file in train]
    return assembled(source, classes, read, read_batch(test, labels, len(classes)))


def read_batch(path: Path, labels: str, classes: int) -> ImageSplit:
    """The images and labels of one batch.

    Raises:
        InputError: the batch lacks one of them, or they are not what the format says.
    """
    batch = read_plain_pickle(path)
    data, numbers = batch.get("data"), batch.get(labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise InputError(f"{path}: no array 'data' of (N, {PIXELS}) bytes")
    if isinstance(numbers, np.ndarray):
        numbers = numbers.tolist()
    if not isinstance(numbers, list) or not all(type(number) is int and number < 2**31 for number in numbers):
        raise InputError(f"{path}: no list '{labels}' of whole numbers")
    return checked_split(path, ArrayImages(channels_last(data)), np.array(numbers, np.int64), classes)
