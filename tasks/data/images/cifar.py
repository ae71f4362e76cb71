"""Readers of CIFAR-10 and CIFAR-100, binary and Python version.

- Binary: records of one or two label bytes and 3,072 pixel bytes. In CIFAR-100 a coarse label precedes the fine label,
  which is the class.
- Python: pickled dictionaries, read without running code of the pickle, with `data` (N, 3072) uint8 and a list of
  labels (`labels`, or `fine_labels` for CIFAR-100).

The pixels of an image are three planes (red, green, blue) of 32 rows of 32. All readers raise InputError if a file is
truncated or damaged, a pickle names a function to call, or a label is out of range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from harness.errors import InputError
from tasks.data.classification import ImageClassificationData, ImageSplit, Pixels
from tasks.data.images.image_arrays import build_split
from tasks.data.images.safe_pickle import read_plain_pickle
from tasks.data.lines import read_file, read_lines
from tasks.data.locate import Source
from tasks.data.splits import three_splits

PLANES, SIDE = 3, 32
PIXELS = PLANES * SIDE * SIDE


def _read(
    read_names: Callable[[Path], Sequence[str]], read_split: Callable[[Path, int], ImageSplit], source: Source
) -> ImageClassificationData:
    """Return the data set of some training files, a test file and a file of class names; dev is 10 % of train."""
    *train_files, test_file, names_file = source.files
    classes = tuple(read_names(names_file))
    if len(classes) != source.dataset.classes:
        raise InputError(f"{names_file}: {len(classes)} class names: expected {source.dataset.classes}")
    batches = [read_split(file, len(classes)) for file in train_files]
    test = read_split(test_file, len(classes))
    pixels = np.concatenate([cast(Pixels, batch.images) for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    splits, note = three_splits({"train": ImageSplit(pixels, labels), "test": test}, seed=source.split_seed)
    return ImageClassificationData(source.name, classes, *splits, (note,))


def _line_names(path: Path) -> list[str]:
    return [line.strip() for line in read_lines(path) if line.strip()]


def _pickle_names(path: Path, key: str) -> list[str]:
    names = read_plain_pickle(path).get(key)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise InputError(f"{path}: expected a list '{key}' of class names")
    return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]


def _read_records(path: Path, classes: int, label_bytes: int) -> ImageSplit:
    content = read_file(path)
    record = label_bytes + PIXELS
    if len(content) % record:
        raise InputError(f"{path}: {len(content)} bytes: expected a multiple of {record}, as in the binary version")
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    labels = table[:, label_bytes - 1].astype(np.int64)
    return build_split(path, _images(table[:, label_bytes:]), labels, classes)


def _read_batch(path: Path, classes: int, key: str) -> ImageSplit:
    batch = read_plain_pickle(path)
    pixels, labels = batch.get("data"), batch.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise InputError(f"{path}: expected an array 'data' of (N, {PIXELS}) bytes")
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if not isinstance(labels, list) or not all(type(label) is int and label < 2**31 for label in labels):
        raise InputError(f"{path}: expected a list '{key}' of integers")
    return build_split(path, _images(pixels), np.array(labels, np.int64), classes)


def _images(rows: Pixels) -> Pixels:
    """Return pixels (N, 3072), plane by plane, as images (N, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, PLANES, SIDE, SIDE).transpose(0, 2, 3, 1))


read_binary10 = partial(_read, _line_names, partial(_read_records, label_bytes=1))
"""Read five training files, a test file, and the names; one label byte per record."""
read_binary100 = partial(_read, _line_names, partial(_read_records, label_bytes=2))
"""Read train.bin, test.bin, and the fine names; two label bytes per record."""
read_python10 = partial(_read, partial(_pickle_names, key="label_names"), partial(_read_batch, key="labels"))
"""Read five training batches, a test batch, and batches.meta."""
read_python100 = partial(_read, partial(_pickle_names, key="fine_label_names"), partial(_read_batch, key="fine_labels"))
"""Read train, test, and meta; the fine labels are the classes."""
