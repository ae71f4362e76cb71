"""Readers of the `label text` format: a class number, a space, a tokenized sentence; one row per line, latin-1.

TREC.{train,test}.all, rt-polarity.all, custrev.all and subj.all have this format.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness.errors import InputError
from tasks.data.classification import TextClassificationData
from tasks.data.lines import read_lines
from tasks.data.locate import Source
from tasks.data.splits import split_note, stratified
from tasks.data.text.labeled_rows import label_number, text_split, train_test_data


def read_one_file(source: Source) -> TextClassificationData:
    """Read a set in one file, split into 80 % train, 10 % dev, 10 % test.

    Raises:
        InputError: a line does not parse; the message names file and line.
    """
    names = source.dataset.class_names
    rows, notes = read_split(source.files[0], len(names))
    train, dev, test = (rows.take(part) for part in stratified(rows.labels, (80, 10, 10)))
    notes = (split_note("80 % train, 10 % dev, 10 % test of one file"), *notes)
    return TextClassificationData(source.name, names, train, dev, test, notes)


def read_train_test(source: Source) -> TextClassificationData:
    """Read a set with a published test file; dev is 10 % of the train file.

    Raises:
        InputError: a line does not parse; the message names file and line.
    """
    return train_test_data(source, source.dataset.class_names, read_split)


def _rows(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_lines(path, "latin-1"), 1):
        location = f"{path}:{number}"
        label, _, text = line.partition(" ")
        if not label:
            raise InputError(f"{location}: no label: expected 'label text', such as '0 a sentence'")
        yield label_number(label, 0, classes, location), text


read_split = partial(text_split, _rows)
"""Read one file (path, number of classes); an InputError names file and line."""
