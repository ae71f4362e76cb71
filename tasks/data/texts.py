"""Labelled texts on their way from a file to a split, for all text formats."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from harness.errors import InputError
from tasks.data.classification import TextSplit
from tasks.data.lines import single_spaces


def label_number(text: str, first: int, count: int, where: str) -> int:
    """A label as a number from 0.

    Args:
        text: the label as it stands in the file.
        first: the number that the file gives to the first class.
        count: number of classes.
        where: "file:line", for the error.

    Raises:
        InputError: it is no such number.
    """
    # Digits alone: int() would also take "1_0", "+1" and digits of other scripts.
    label = int(text) - first if text.isascii() and text.isdigit() else -1
    if not 0 <= label < count:
        raise InputError(f"{where}: label '{text[:40]}' is no number from {first} to {first + count - 1}")
    return label


def text_split(path: Path, rows: Iterable[tuple[int, str]]) -> tuple[TextSplit, tuple[str, ...]]:
    """A split from labels and texts, and a note on rows without text, which no model can read and which are left out.

    Raises:
        InputError: no row has a text.
    """
    labels: list[int] = []
    texts: list[str] = []
    empty = 0
    for label, raw in rows:
        if text := single_spaces(raw):
            labels.append(label)
            texts.append(text)
        else:
            empty += 1
    if not texts:
        raise InputError(f"{path}: no row has a text")
    notes = (f"{empty} row{'s' * (empty > 1)} of {path.name} without text left out",) if empty else ()
    return TextSplit(tuple(texts), np.array(labels, np.int64)), notes
