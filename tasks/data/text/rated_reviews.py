"""Reader of rated reviews in Tang's format: user, product, rating (from 1) and text, separated by two tabs; UTF-8.

The sentences of the text are separated by the mark <sssss>, which becomes a space. The Yelp and IMDB sets of Tang, Qin
and Liu (2015) have this format: *-train.txt.ss, *-dev.txt.ss and *-test.txt.ss.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness.errors import InputError
from tasks.data.classification import TextClassificationData
from tasks.data.lines import read_lines
from tasks.data.locate import Source
from tasks.data.text.labeled_rows import label_number, text_split

SENTENCE_MARK = "<sssss>"


def read(source: Source) -> TextClassificationData:
    """Read the three files; the splits are the published ones.

    Raises:
        InputError: a line does not parse; the message names file and line.
    """
    names = source.dataset.class_names
    splits, notes = zip(*(read_split(file, len(names)) for file in source.files), strict=True)
    train, dev, test = splits
    return TextClassificationData(source.name, names, train, dev, test, ("splits as published", *sum(notes, ())))


def _rows(path: Path, classes: int) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_lines(path), 1):
        location = f"{path}:{number}"
        fields = line.split("\t\t", 3)
        if len(fields) < 4:
            raise InputError(
                f"{location}: {len(fields)} field{'s' * (len(fields) > 1)}: "
                "expected user, product, rating, text, separated by two tabs"
            )
        yield label_number(fields[2].strip(), 1, classes, location), fields[3].replace(SENTENCE_MARK, " ")


read_split = partial(text_split, _rows)
"""Read one file (path, number of classes); an InputError names file and line."""
