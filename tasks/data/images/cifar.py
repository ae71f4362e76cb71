"""Reader of the binary versions of CIFAR-10 and CIFAR-100.

A record is one label byte (in CIFAR-100 a coarse label, then the fine label, which is the class) and 3,072 pixel bytes:
three planes (red, green, blue) of 32 rows of 32.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from dropbench.harness.errors import InputError
from dropbench.tasks.data.classification import ImageClassificationData, ImageSplit, Pixels
from dropbench.tasks.data.images.image_arrays import build_split
from dropbench.tasks.data.lines import read_file, read_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import three_splits

PLANES, SIDE = 3, 32


def _read(label_bytes: int, source: Source) -> ImageClassificationData:
    """Return the data set of some training files, a test file and a file of class names; dev is 10 % of train.

    Raises:
        InputError: a file is truncated, or a label is out of range.
    """
    *train_files, test_file, names_file = source.files
    classes = tuple(line.strip() for line in read_lines(names_file) if line.strip())
    if len(classes) != source.dataset.classes:
        raise InputError(f"{names_file}: {len(classes)} class names: expected {source.dataset.classes}")
    *batches, test = (_read_records(file, len(classes), label_bytes) for file in (*train_files, test_file))
    pixels = np.concatenate([cast(Pixels, batch.images) for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    splits, note = three_splits({"train": ImageSplit(pixels, labels), "test": test}, seed=source.split_seed)
    return ImageClassificationData(source.name, classes, *splits, (note,))


def _read_records(path: Path, classes: int, label_bytes: int) -> ImageSplit:
    content = read_file(path)
    record = label_bytes + PLANES * SIDE * SIDE
    if len(content) % record:
        raise InputError(f"{path}: {len(content)} bytes: expected a multiple of {record}, as in the binary version")
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    images = table[:, label_bytes:].reshape(-1, PLANES, SIDE, SIDE).transpose(0, 2, 3, 1)
    return build_split(path, np.ascontiguousarray(images), table[:, label_bytes - 1].astype(np.int64), classes)


read_cifar10 = partial(_read, 1)
"""Read five training files, a test file, and the names; one label byte per record."""
read_cifar100 = partial(_read, 2)
"""Read train.bin, test.bin, and the fine names; two label bytes per record."""
