"""Readers of labeled texts, one row per line.

- `label text`: a class number, a space, a tokenized sentence; latin-1. TREC.{train,test}.all, rt-polarity.all,
  custrev.all and subj.all have this format.
- AG's News as csv: class (from 1), title and description, or class and text; quoted fields, UTF-8. The published files
  contain backslashes at line ends and before dollar signs, which are read as white space.
- Rated reviews in Tang's format: user, product, rating (from 1) and text, separated by two tabs; UTF-8. The sentences
  of the text are separated by the mark <sssss>, which becomes a space. The Yelp and IMDB sets of Tang, Qin and Liu
  (2015) have this format: *-train.txt.ss, *-dev.txt.ss and *-test.txt.ss.

All readers raise InputError, which names file and line, for a row that does not parse.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.classification import TextClassificationData, TextSplit
from dropbench.tasks.data.lines import MAX_LINE, read_lines, single_spaces, stream_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import SPLITS, three_splits

SENTENCE_MARK = "<sssss>"
NotedSplit = tuple[TextSplit, tuple[str, ...]]
"""A split, and notes on it."""
Row = tuple[int, str, str]
"""Line number, label, text."""


def _read(
    read_split: Callable[[Path, int], NotedSplit], splits: Sequence[Split], source: Source, names: Sequence[str] = ()
) -> TextClassificationData:
    names = tuple(names or source.dataset.class_names)
    parts = {split: read_split(file, len(names)) for split, file in zip(splits, source.files, strict=False)}
    given = {split: rows for split, (rows, _) in parts.items()}
    whole = "the published train" if len(splits) > 1 else "one file"
    three, note = three_splits(given, whole=whole, seed=source.split_seed)
    notes = (note or "splits as published", *(note for _, notes in parts.values() for note in notes))
    return TextClassificationData(source.name, names, *three, notes)


def read_news(source: Source) -> TextClassificationData:
    """Read AG's train.csv, test.csv and classes.txt; dev is 10 % of train.csv."""
    names = tuple(line.strip() for line in read_lines(source.files[2]) if line.strip())
    return _read(read_news_csv, ("train", "test"), source, names)


def _split(rows: Callable[[Path], Iterable[Row]], first: int, path: Path, classes: int) -> NotedSplit:
    """Return the split of a file, whose first class is `first`, and a note on rows without text, which are left out."""
    labels: list[int] = []
    texts: list[str] = []
    empty = 0
    for line, label, raw in rows(path):
        # Digits only: int() would also take "1_0", "+1" and digits of other scripts.
        number = int(label) - first if label.isascii() and label.isdigit() else -1
        if not 0 <= number < classes:
            expected = f"a number from {first} to {first + classes - 1}"
            raise InputError(f"{path}:{line}: label '{label[:40]}': expected {expected}")
        if text := single_spaces(raw):
            labels.append(number)
            texts.append(text)
        else:
            empty += 1
    if not texts:
        raise InputError(f"{path}: no row has a text: expected one at least")
    notes = (f"{count_of(empty, 'row')} of {path.name} without text left out",) if empty else ()
    return TextSplit(tuple(texts), np.array(labels, np.int64)), notes


def _label_text_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, "latin-1"), 1):
        label, _, text = line.partition(" ")
        if not label:
            raise InputError(f"{path}:{number}: no label: expected 'label text', such as '0 a sentence'")
        yield number, label, text


def csv_rows(path: Path, lines: Iterable[str], separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the fields of each row; raise InputError for a quote in the wrong place."""
    csv.field_size_limit(MAX_LINE)  # of the process; by default 128 KiB, which documents exceed
    reader = csv.reader((f"{line}\n" for line in lines), strict=True, delimiter=separator)
    while True:
        # The line at which the row starts: an open quote is detected many lines later.
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f'{path}:{number}: {error}: expected quoted fields with " doubled inside') from None
        if row is None:
            return
        yield number, row


def csv_table(path: Path, separator: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the values by column of each row, columns named in line 1; raise InputError as `csv_rows`."""
    _, names = next(rows := csv_rows(path, (line for _, line in stream_lines(path)), separator))
    for number, row in rows:
        if row and not len(row) == len(names) == len({*names}):
            raise InputError(f"{path}:{number}: {count_of(len(row), 'column')}: expected {len(names)} of unique names")
        yield number, dict(zip(names, row, strict=False))


def _news_rows(path: Path) -> Iterator[Row]:
    for number, row in csv_rows(path, read_lines(path)):
        if len(row) not in (2, 3):
            raise InputError(f"{path}:{number}: expected class, title, description or class, text, not {len(row)}")
        yield number, row[0], " ".join(row[1:]).replace("\\", " ")


def _review_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t\t", 3)
        if len(fields) < 4:
            raise InputError(
                f"{path}:{number}: {count_of(len(fields), 'field')}: "
                "expected user, product, rating, text, separated by two tabs"
            )
        yield number, fields[2].strip(), fields[3].replace(SENTENCE_MARK, " ")


read_label_text = partial(_split, _label_text_rows, 0)
"""Read one file (path, number of classes) of `label text`: its split, and notes."""
read_news_csv = partial(_split, _news_rows, 1)
"""Read one csv file (path, number of classes) of AG's News: its split, and notes."""
read_reviews = partial(_split, _review_rows, 1)
"""Read one file (path, number of classes) of rated reviews: its split, and notes."""
read_one_file = partial(_read, read_label_text, ("train",))
"""Read a set of `label text` in one file, split into 80 % train, 10 % dev, 10 % test."""
read_train_test = partial(_read, read_label_text, ("train", "test"))
"""Read a set of `label text` with a published test file; dev is 10 % of the train file."""
read_three_files = partial(_read, read_label_text, SPLITS)
"""Read three files of `label text`; the splits are the published ones."""
read_rated_reviews = partial(_read, read_reviews, SPLITS)
"""Read three files of rated reviews; the splits are the published ones."""
