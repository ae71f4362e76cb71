"""Reader of AG's News as csv: class (from 1), title and description, or class and text; quoted fields, UTF-8.

The published files contain backslashes at line ends and before dollar signs, which are read as white space.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness.errors import InputError
from tasks.data.classification import TextClassificationData
from tasks.data.lines import read_lines
from tasks.data.locate import Source
from tasks.data.text.labeled_rows import label_number, text_split, train_test_data


def read(source: Source) -> TextClassificationData:
    """Read train.csv, test.csv and classes.txt; dev is 10 % of train.csv.

    Raises:
        InputError: a row does not parse; the message names file and line.
    """
    names = tuple(line.strip() for line in read_lines(source.files[2]) if line.strip())
    return train_test_data(source, names, read_split)


def _rows(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    while True:
        # The line at which the row starts: an open quote is detected many lines later.
        location = f"{path}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f'{location}: {error}: expected quoted fields with " doubled inside') from None
        if row is None:
            return
        if len(row) not in (2, 3):
            raise InputError(f"{location}: {len(row)} columns: expected class, title, description or class, text")
        yield label_number(row[0], 1, classes, location), " ".join(row[1:]).replace("\\", " ")


read_split = partial(text_split, _rows)
"""Read one file (path, number of classes); an InputError names file and line."""
