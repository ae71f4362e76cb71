"""AG's News as csv: class (from 1), title and description, or class and text; every field quoted, UTF-8.

The published files still have a backslash where a line ended, or before a dollar sign; it counts as white space.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InputError
from tasks.data.classification import TextClassificationData, TextSplit
from tasks.data.lines import read_lines
from tasks.data.splits import carve_dev, noted
from tasks.data.texts import label_number, text_split

if TYPE_CHECKING:
    from tasks.data.locate import Source


def read(source: Source) -> TextClassificationData:
    """train.csv, test.csv and classes.txt; dev is 10 % of train.csv.

    Raises:
        InputError: a row does not parse; the message has file and line.
    """
    train_file, test_file, class_file = source.files
    names = tuple(line.strip() for line in read_lines(class_file) if line.strip())
    published, train_notes = read_split(train_file, len(names))
    test, test_notes = read_split(test_file, len(names))
    train, dev = carve_dev(published)
    notes = (noted("dev is 10 % of the published train"), *train_notes, *test_notes)
    return TextClassificationData(source.name, names, train, dev, test, notes)


def read_split(path: Path, classes: int) -> tuple[TextSplit, tuple[str, ...]]:
    """The rows of one csv file; title and description are joined by a space.

    Raises:
        InputError: a row does not parse; the message has file and line.
    """
    return text_split(path, _rows(path, classes))


def _rows(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    while True:
        # The line at which the row starts: an open quote is noticed many lines later.
        where = f"{path}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f'{where}: {error}: expected quoted fields with " doubled inside') from None
        if row is None:
            return
        if len(row) not in (2, 3):
            raise InputError(f"{where}: {len(row)} columns: expected class, title, description or class, text")
        yield label_number(row[0], 1, classes, where), " ".join(row[1:]).replace("\\", " ")
