"""Labeled texts: validation of labels, and data sets from rows, for all text formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from harness.errors import InputError
from tasks.data.classification import TextClassificationData, TextSplit
from tasks.data.lines import single_spaces
from tasks.data.locate import Source
from tasks.data.splits import carve_dev, split_note

NotedSplit = tuple[TextSplit, tuple[str, ...]]
"""A split, and notes on it."""


def label_number(text: str, first: int, count: int, location: str) -> int:
    """Return a label as a number from 0.

    Args:
        text: the label in the file.
        first: the number of the first class in the file.
        count: number of classes.
        location: "file:line", for the error.

    Raises:
        InputError: the label is not such a number.
    """
    # Digits only: int() would also take "1_0", "+1" and digits of other scripts.
    label = int(text) - first if text.isascii() and text.isdigit() else -1
    if not 0 <= label < count:
        raise InputError(f"{location}: label '{text[:40]}': expected a number from {first} to {first + count - 1}")
    return label


def text_split(rows: Callable[[Path, int], Iterable[tuple[int, str]]], path: Path, classes: int) -> NotedSplit:
    """Return the split of a file, and a note on rows without text, which are left out; `rows` reads the file.

    Raises:
        InputError: no row has a text, or `rows` raises it.
    """
    labels: list[int] = []
    texts: list[str] = []
    empty = 0
    for label, raw in rows(path, classes):
        if text := single_spaces(raw):
            labels.append(label)
            texts.append(text)
        else:
            empty += 1
    if not texts:
        raise InputError(f"{path}: no row has a text: expected one at least")
    notes = (f"{empty} row{'s' * (empty > 1)} of {path.name} without text left out",) if empty else ()
    return TextSplit(tuple(texts), np.array(labels, np.int64)), notes


def train_test_data(
    source: Source, names: tuple[str, ...], read_split: Callable[[Path, int], NotedSplit]
) -> TextClassificationData:
    """Return a set with these class names whose first two files are train and test; dev is 10 % of train."""
    published, train_notes = read_split(source.files[0], len(names))
    test, test_notes = read_split(source.files[1], len(names))
    train, dev = carve_dev(published)
    notes = (split_note("dev is 10 % of the published train"), *train_notes, *test_notes)
    return TextClassificationData(source.name, names, train, dev, test, notes)
