"""Rated reviews in Tang's format: user, product, rating (from 1) and text, parted by double tabs; UTF-8.

Sentences within the text are parted by the mark <sssss>, which becomes a space. The Yelp and IMDB sets of Tang, Qin and
Liu (2015) are published so, as *-train.txt.ss, *-dev.txt.ss and *-test.txt.ss.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InputError
from tasks.data.classification import TextClassificationData, TextSplit
from tasks.data.lines import read_lines
from tasks.data.texts import label_number, text_split

if TYPE_CHECKING:
    from tasks.data.locate import Source

SENTENCE_MARK = "<sssss>"


def read(source: Source) -> TextClassificationData:
    """The three files, as they were parted by their publishers.

    Raises:
        InputError: a line does not parse; the message has file and line.
    """
    names = source.dataset.class_names
    splits, notes = zip(*(read_split(file, len(names)) for file in source.files), strict=True)
    train, dev, test = splits
    return TextClassificationData(source.name, names, train, dev, test, ("splits as published", *sum(notes, ())))


def read_split(path: Path, classes: int) -> tuple[TextSplit, tuple[str, ...]]:
    """The rows of one file.

    Raises:
        InputError: a line does not parse; the message has file and line.
    """
    return text_split(path, _rows(path, classes))


def _rows(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}:{number}"
        fields = line.split("\t\t", 3)
        if len(fields) < 4:
            raise InputError(
                f"{where}: {len(fields)} field{'s' * (len(fields) > 1)}: "
                "expected user, product, rating, text with two tabs between them"
            )
        yield label_number(fields[2].strip(), 1, classes, where), fields[3].replace(SENTENCE_MARK, " ")
