"""Readers of a user's own data. All raise InputError, which names file and line, for what does not parse or fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.errors import InputError
from harness.files import read_bytes
from harness.trials.task import Split
from tasks.data.card import CARD, Card, describe
from tasks.data.classification import ImageClassificationData, ImageSplit, TextClassificationData, TextSplit
from tasks.data.dataset import DATASETS
from tasks.data.images.image_arrays import FileImages
from tasks.data.images.image_folder import class_folders, class_names
from tasks.data.lines import single_spaces, stream_lines
from tasks.data.locate import Source
from tasks.data.read import Data
from tasks.data.splits import overlap_notes, three_splits
from tasks.data.text.conll import read_columns
from tasks.data.text.labeled_text import csv_rows
from tasks.data.text.snli import PairData, PairSplit, json_rows
from tasks.data.text.tagged import TaggedData, tagged_data

FILES = "splits as in the files"
Row = tuple[int, Mapping[str, Any]]
"""Line number, and values by column."""


def _open(source: Source) -> tuple[Card, dict[Split, Path]]:
    """Return the card of a set, and the file of each split that has one."""
    _, card, splits = describe(DATASETS.get(source.name), source.folder)
    return card, {split: source.folder / name for split, name in splits.items()}


def _csv(path: Path, card: Card) -> Iterator[Row]:
    _, names = next(rows := csv_rows(path, (line for _, line in stream_lines(path)), card.separator))
    for number, row in rows:
        if row and len(row) != len({*names}):
            raise InputError(f"{path}:{number}: {len(row)} columns: expected {len({*names})}, named in line 1")
        yield number, dict(zip(names, row, strict=False))


def _value(path: Path, line: int, row: Mapping[str, Any], name: str) -> str:
    if not isinstance(value := row.get(name), str | int):
        raise InputError(f"{path}:{line}: no text or integer '{name}' in {', '.join(row)[:200]}: name it in {CARD}")
    return single_spaces(str(value))


def _read_table(rows_of: Callable[[Path, Card], Iterator[Row]], source: Source) -> Data:
    card, files = _open(source)
    types: tuple[Any, Any] = (TextClassificationData, TextSplit) if len(card.text) == 1 else (PairData, PairSplit)
    names, label = [*card.text, card.label, *filter(None, [card.group])], len(card.text)
    tables = {
        split: [(line, [_value(path, line, row, name) for name in names]) for line, row in rows_of(path, card) if row]
        for split, path in files.items()
    }
    names_in_train = sorted({values[label] for _, values in tables["train"]} - {""})
    classes = card.classes or tuple(sorted(names_in_train, key=lambda c: (not c.isdecimal(), len(c) * c.isdecimal())))
    numbers = {name: number for number, name in enumerate(classes)}
    given, groups, notes = dict[Split, Any](), dict[Split, Sequence[str]](), list[str]()
    for split, table in tables.items():
        for line, values in table:
            if values[label] not in numbers:
                known = f"{', '.join(classes)[:200]}, the classes of {'the card' if card.classes else 'train'}"
                raise InputError(f"{files[split]}:{line}: {card.label} '{values[label][:40]}': not among {known}")
        columns = list(zip(*(values for _, values in table if all(values[:label])), strict=True))
        if not columns or len(numbers) < 2:
            raise InputError(f"{files[split]}: expected rows with text, and two classes at least")
        if left_out := len(table) - len(columns[0]):
            notes.append(f"{left_out:,} rows of {files[split].name} without text left out")
        labels = np.array([numbers[name] for name in columns[label]], np.int64)
        given[split] = types[1](*columns[:label], labels)
        groups |= {split: columns[-1]} if card.group else {}
    splits, split_note = three_splits(given, card.percent, groups, "your files")
    duplicates = overlap_notes(zip(*list(vars(rows).values())[:label], strict=True) for rows in splits)
    return cast(Data, types[0](source.name, classes, *splits, (split_note or FILES, *notes, *duplicates)))


read_csv = partial(_read_table, _csv)
"""Read labeled texts or pairs from files of separated values with the columns' names in the first line."""
read_jsonl = partial(_read_table, lambda path, card: json_rows(path))
"""Read labeled texts or pairs from lines of JSON objects."""


def read_conll(source: Source) -> TaggedData:
    """Read tagged sentences; the group of a sentence is that of its first word."""
    card, files = _open(source)
    given = {split: read_columns(path, card.columns, card.scored).split for split, path in files.items()}
    groups = {split: [row[0] for row in rows.columns[card.group]] for split, rows in given.items() if card.group}
    splits, split_note = three_splits(given, card.percent, groups, "your files")
    notes = (split_note or FILES, *overlap_notes(rows.words for rows in splits))
    return tagged_data(source, splits, notes, card.scored)


def _paths(rows: ImageSplit) -> list[Path]:
    return [cast(FileImages, rows.images).path(row) for row in range(len(rows))]


def read_image_folder(source: Source) -> ImageClassificationData:
    """Read images in a folder per class; dev and test may lack classes."""
    card, folders = _open(source)
    skipped: list[Path] = []
    names = {split: class_names(folder, skipped) for split, folder in folders.items()}
    classes = card.classes or names["train"]
    for split, present in names.items():
        if unknown := {*present} - {*classes} or ({*classes} - {*present} if split == "train" else ()):
            where = CARD if card.classes else "train"
            raise InputError(
                f"{folders[split]}: class '{min(unknown)}' is in the folder or in {where}, but not in both"
            )
    given = {split: class_folders(folder, classes, skipped) for split, folder in folders.items()}
    skipped = [path for path in skipped if path.name != CARD]
    groups = {split: [path.name.split(card.group or None)[0] for path in _paths(rows)] for split, rows in given.items()}
    splits, note = three_splits(given, card.percent, groups if card.group else {}, "your files")
    sizes = [{path: path.stat().st_size for path in _paths(rows)} for rows in splits]
    common = {size for one, other in combinations(sizes, 2) for size in {*one.values()} & {*other.values()}}
    # Files are read only if one of another split has their size.
    keys = ([sha256(read_bytes(path)).digest() for path in part if part[path] in common] for part in sizes)
    notes = [f"{len(skipped):,} files that are no images skipped"] if skipped else []
    return ImageClassificationData(source.name, classes, *splits, (note or FILES, *notes, *overlap_notes(keys)))
