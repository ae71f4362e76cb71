"""Readers of CIFAR-10 and CIFAR-100, Python version: pickled dictionaries, read without running code of the pickle.

A batch has `data` (N, 3072) uint8, plane by plane, and a list of labels (`labels`, or `fine_labels` for CIFAR-100).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.errors import InputError
from tasks.data.classification import ImageClassificationData, ImageSplit
from tasks.data.images.cifar_binary import PIXELS, build_data, channels_last, validate_class_names
from tasks.data.images.image_arrays import ArrayImages, build_split
from tasks.data.images.safe_pickle import read_plain_pickle
from tasks.data.locate import Source


def read_cifar10(source: Source) -> ImageClassificationData:
    """Read five training batches, a test batch, and batches.meta.

    Raises:
        InputError: a file is damaged, its pickle names a function to call, or a label is out of range.
    """
    *train, test, meta = source.files
    return _read(source, train, test, meta, "labels", "label_names")


def read_cifar100(source: Source) -> ImageClassificationData:
    """Read train, test, and meta; the fine labels are the classes.

    Raises:
        InputError: a file is damaged, its pickle names a function to call, or a label is out of range.
    """
    train, test, meta = source.files
    return _read(source, [train], test, meta, "fine_labels", "fine_label_names")


def _read(
    source: Source, train: Sequence[Path], test: Path, meta: Path, labels: str, names: str
) -> ImageClassificationData:
    class_names = read_plain_pickle(meta).get(names)
    if not isinstance(class_names, list) or not all(isinstance(name, str | bytes) for name in class_names):
        raise InputError(f"{meta}: expected a list '{names}' of class names")
    decoded = [name.decode("latin-1") if isinstance(name, bytes) else name for name in class_names]
    classes = validate_class_names(source, meta, decoded)
    batches = [read_batch(file, labels, len(classes)) for file in train]
    return build_data(source, classes, batches, read_batch(test, labels, len(classes)))


def read_batch(path: Path, labels: str, classes: int) -> ImageSplit:
    """Return the images and labels of one batch.

    Raises:
        InputError: the batch lacks images or labels, or they do not have the published format.
    """
    batch = read_plain_pickle(path)
    pixels, numbers = batch.get("data"), batch.get(labels)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise InputError(f"{path}: expected an array 'data' of (N, {PIXELS}) bytes")
    if isinstance(numbers, np.ndarray):
        numbers = numbers.tolist()
    if not isinstance(numbers, list) or not all(type(number) is int and number < 2**31 for number in numbers):
        raise InputError(f"{path}: expected a list '{labels}' of integers")
    return build_split(path, ArrayImages(channels_last(pixels)), np.array(numbers, np.int64), classes)
