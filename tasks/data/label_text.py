"""The `label text` format: a class number, a space, a tokenised sentence; one row a line, latin-1.

TREC.{train,test}.all, rt-polarity.all, custrev.all and subj.all are published so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InputError
from tasks.data.classification import TextClassificationData, TextSplit
from tasks.data.lines import read_lines
from tasks.data.splits import carve_dev, noted, stratified
from tasks.data.texts import label_number, text_split

if TYPE_CHECKING:
    from tasks.data.locate import Source


def read_one_file(source: Source) -> TextClassificationData:
    """A set in one file, parted into 80 % train, 10 % dev, 10 % test.

    Raises:
        InputError: a line does not parse; the message has file and line.
    """
    names = source.dataset.class_names
    rows, notes = read_split(source.files[0], len(names))
    train, dev, test = (rows.take(part) for part in stratified(rows.labels, (80, 10, 10)))
    notes = (noted("80 % train, 10 % dev, 10 % test of one file"), *notes)
    return TextClassificationData(source.name, names, train, dev, test, notes)


def read_train_test(source: Source) -> TextClassificationData:
    """A set with a published test file; dev is 10 % of the train file.

    Raises:
        InputError: a line does not parse; the message has file and line.
    """
    names = source.dataset.class_names
    published, train_notes = read_split(source.files[0], len(names))
    test, test_notes = read_split(source.files[1], len(names))
    train, dev = carve_dev(published)
    notes = (noted("dev is 10 % of the published train"), *train_notes, *test_notes)
    return TextClassificationData(source.name, names, train, dev, test, notes)


def read_split(path: Path, classes: int) -> tuple[TextSplit, tuple[str, ...]]:
    """The rows of one file.

    Raises:
        InputError: a line does not parse; the message has file and line.
    """
    return text_split(path, _rows(path, classes))


def _rows(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_lines(path, "latin-1"), 1):
        where = f"{path}:{number}"
        label, _, text = line.partition(" ")
        if not label:
            raise InputError(f"{where}: no label: expected 'label text', such as '0 a sentence'")
        yield label_number(label, 0, classes, where), text
