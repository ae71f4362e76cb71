"""Readers of a user's own data. All raise InputError, which names file and line, for what does not parse or fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np

from dropbench.harness.errors import InputError, check_text, count_of
from dropbench.harness.files import read_bytes
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.card import CARD, Card, describe
from dropbench.tasks.data.classification import ImageClassificationData
from dropbench.tasks.data.dataset import DATASETS
from dropbench.tasks.data.detection.annotations import AnnotatedSplit
from dropbench.tasks.data.detection.coco import BoxedImage, DetectionData, read_annotations
from dropbench.tasks.data.images.image_folder import (
    ANNOTATIONS,
    annotated_images,
    class_folders,
    class_names,
    file_split,
)
from dropbench.tasks.data.lines import single_spaces, stream_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import Data
from dropbench.tasks.data.splits import SPLITS, overlap_notes, three_splits
from dropbench.tasks.data.text.conll import read_columns
from dropbench.tasks.data.text.labeled_text import csv_rows
from dropbench.tasks.data.text.scored import ScoredData, ScoredSplit, finite_number
from dropbench.tasks.data.text.snli import TABLES, Row, json_rows
from dropbench.tasks.data.text.tagged import TaggedData, tagged_data
from dropbench.tasks.data.translation.parallel import PairFiles, ParallelText

FILES = "splits as in the files"
WHOLE, NUMBER = re.compile(r"[+-]?\d{1,999}"), re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def _open(source: Source) -> tuple[Card, dict[Split, list[Path]]]:
    """Return the card of a set, and the files of each split that has some."""
    _, card, splits = describe(DATASETS.get(source.name), source.folder)
    return card, {split: [source.folder / name for name in names] for split, names in splits.items()}


def _csv(path: Path, card: Card) -> Iterator[Row]:
    _, names = next(rows := csv_rows(path, (line for _, line in stream_lines(path)), card.separator))
    for number, row in rows:
        if row and not len(row) == len(names) == len({*names}):
            raise InputError(f"{path}:{number}: {count_of(len(row), 'column')}: expected {len(names)} of unique names")
        yield number, dict(zip(names, row, strict=False))


def _value(path: Path, line: int, row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        hint = f"among {', '.join(row)[:200]}: name the columns, and a csv's separator, in {CARD}"
        raise InputError(f"{path}:{line}: no column '{name}' {hint}")
    if not isinstance(value := row[name], str | int | float) or isinstance(value, bool):
        given = json.dumps(value)[:40]
        raise InputError(f"{path}:{line}: {name} is {given}: expected text or a whole number")
    check_text(str(value), f"{path}:{line}: {name}")
    return single_spaces(str(value))


def _classes(path: Path, label: str, names: set[str]) -> tuple[str, ...]:
    """Return the labels of train in order: whole numbers by value, then words by alphabet."""
    words = sorted(names - {""})
    fractions = [name for name in words if not WHOLE.fullmatch(name)]
    if fractions and all(NUMBER.fullmatch(name) for name in words):
        expected = f"for regression, name the column by `score` in {CARD}; or list the classes by `classes`"
        raise InputError(f"{path}: {label} is a number such as {fractions[0][:40]}: {expected}")
    whole = sorted(filter(WHOLE.fullmatch, words), key=int)
    return (*whole, *(name for name in words if name not in {*whole}))


def _read_table(rows_of: Callable[[Path, Card], Iterator[Row]], source: Source) -> Data:
    card, files = _open(source)
    names, label = [*card.text, card.score or card.label, *filter(None, [card.group])], len(card.text)
    tables = {
        split: [(line, [_value(path, line, row, name) for name in names]) for line, row in rows_of(path, card) if row]
        for split, [path] in files.items()
    }
    if card.score:
        return _scored(source, card, files, tables)
    data_type, split_type = TABLES[len(card.text)]
    classes = card.classes or _classes(files["train"][0], card.label, {values[label] for _, values in tables["train"]})
    numbers = {name: number for number, name in enumerate(classes)}
    given, groups, notes = dict[Split, Any](), dict[Split, Sequence[str]](), list[str]()
    for split, table in tables.items():
        for line, values in table:
            if values[label] not in numbers:
                known = f"{', '.join(classes)[:200]}, the classes of {'the card' if card.classes else 'train'}"
                raise InputError(f"{files[split][0]}:{line}: {card.label} '{values[label][:40]}': not among {known}")
        columns = list(zip(*(values for _, values in table if all(values[:label])), strict=True))
        if not columns:
            raise InputError(f"{files[split][0]}: no rows with text: expected one at least")
        if len(numbers) < 2:
            raise InputError(f"{files[split][0]}: {count_of(len(numbers), 'class', 'classes')}: expected two or more")
        if left_out := len(table) - len(columns[0]):
            notes.append(f"{count_of(left_out, 'row')} of {files[split][0].name} without text left out")
        labels = np.array([numbers[name] for name in columns[label]], np.int64)
        given[split] = split_type(*columns[:label], labels)
        groups |= {split: columns[-1]} if card.group else {}
    splits, split_note = three_splits(given, card.percent, groups, "your files", source.split_seed)
    duplicates = overlap_notes(zip(*list(vars(rows).values())[:label], strict=True) for rows in splits)
    return cast(Data, data_type(source.name, classes, *splits, (split_note or FILES, *notes, *duplicates)))


def _scored(source: Source, card: Card, files: Mapping[Split, list[Path]], tables: Mapping[Split, Any]) -> ScoredData:
    """Return texts or pairs with scores; as `_read_table`, which leaves them to this."""
    given, groups, notes, number = dict[Split, Any](), dict[Split, Sequence[str]](), list[str](), len(card.text)
    for split, table in tables.items():
        path = files[split][0]
        kept = [(line, values) for line, values in table if all(values[:number])]
        if not kept:
            raise InputError(f"{path}: no rows with text: expected one at least")
        if left_out := len(table) - len(kept):
            notes.append(f"{count_of(left_out, 'row')} of {path.name} without text left out")
        scores = [finite_number(values[number], f"{path}:{line}: {card.score}") for line, values in kept]
        given[split] = ScoredSplit(tuple(tuple(values[:number]) for _, values in kept), np.array(scores))
        groups |= {split: [values[-1] for _, values in kept]} if card.group else {}
    (train, dev, test), split_note = three_splits(given, card.percent, groups, "your files", source.split_seed)
    duplicates = overlap_notes(rows.texts for rows in (train, dev, test))
    return ScoredData(source.name, (), train, dev, test, (split_note or FILES, *notes, *duplicates))


read_csv = partial(_read_table, _csv)
"""Read labeled texts or pairs from files of separated values with the columns' names in the first line."""
read_jsonl = partial(_read_table, lambda path, card: json_rows(path))
"""Read labeled texts or pairs from lines of JSON objects."""


def read_conll(source: Source) -> TaggedData:
    """Read tagged sentences; the group of a sentence is that of its first word."""
    card, files = _open(source)
    given = {split: read_columns(path, card.columns, card.scored)[0] for split, [path] in files.items()}
    groups = {split: [row[0] for row in rows.columns[card.group]] for split, rows in given.items() if card.group}
    splits, split_note = three_splits(given, card.percent, groups, "your files", source.split_seed)
    notes = (split_note or FILES, *overlap_notes(rows.words for rows in splits))
    return tagged_data(source, splits, notes, card.scored)


def _split_images(card: Card, given: Mapping[Split, Any], seed: int) -> tuple[tuple[Any, Any, Any], list[str]]:
    """Return train, dev and test, and notes. A file is read only if one of another split has its size."""

    def paths(rows: Any) -> list[Path]:
        files = rows.files() if isinstance(rows, AnnotatedSplit) else rows.images
        return [files.path(row) for row in range(len(files))]

    given_paths = {split: paths(rows) for split, rows in given.items() if card.group}
    groups = {split: [path.name.partition(card.group)[0] for path in files] for split, files in given_paths.items()}
    if card.group and not any(card.group in path.name for files in given_paths.values() for path in files):
        raise InputError(f"{CARD}: group '{card.group}' is in no file's name: correct or drop it")
    splits, note = three_splits(given, card.percent, groups, "your files", seed)
    sizes = [{path: _size(path) for path in paths(rows)} for rows in splits]
    common = {size for one, other in combinations(sizes, 2) for size in {*one.values()} & {*other.values()}}
    keys = ([sha256(read_bytes(path)).digest() for path in part if part[path] in common] for part in sizes)
    return splits, [note or FILES, *overlap_notes(keys)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def read_image_folder(source: Source) -> ImageClassificationData:
    """Read images in a folder per class, or in Tiny-ImageNet's published layout; dev and test may lack classes."""
    card, folders = _open(source)
    skipped, left_out = list[Path](), list[str]()
    # As in Tiny-ImageNet's archive, whose test images have no classes.
    annotated = {split for split, [folder] in folders.items() if (folder / ANNOTATIONS).is_file()} - {"train"}
    names = {split: class_names(folder, skipped) for split, [folder] in folders.items() if split not in annotated}
    if annotated and names.get("test") == ("images",):
        del names["test"], folders["test"]
        left_out = ["the folder test left out, as its images have no classes"]
    classes = card.classes or names["train"]
    if len(classes) < 2:
        raise InputError(f"{source.folder}: {len(classes)} class: expected two or more, with a folder for each")
    for split, present in names.items():
        if unknown := {*present} - {*classes} or ({*classes} - {*present} if split == "train" else ()):
            where = CARD if card.classes else "train"
            raise InputError(
                f"{folders[split][0]}: class '{min(unknown)}' is in the folder or in {where}, but not in both"
            )
    given = {
        split: file_split(folder, (annotated_images if split in annotated else class_folders)(folder, classes, skipped))
        for split, [folder] in folders.items()
    }
    splits, notes = _split_images(card, given, source.split_seed)
    notes += left_out
    if count := len({*skipped} - {source.folder / CARD}):
        notes.append(f"{count_of(count, 'file or folder', 'files or folders')} skipped, not images")
    return ImageClassificationData(source.name, classes, *splits, tuple(notes))


def read_coco_json(source: Source) -> DetectionData:
    """Read images with boxes in COCO's format."""
    card, files = _open(source)
    given, notes, categories = dict[Split, AnnotatedSplit[BoxedImage]](), list[str](), dict[int, str]()
    for split, [path, folder] in files.items():
        names, images, left_out = read_annotations(path, folder)
        if names != (categories := categories or names):
            raise InputError(f"{path}: categories differ from those of another split: expected the same in all")
        given[split] = AnnotatedSplit(path, folder, images)
        if left_out:
            boxes = f"{count_of(left_out, 'box', 'boxes')} of {path.name}"
            notes.append(f"{boxes} outside of their image, or narrower than a pixel, left out")
    splits, split_notes = _split_images(card, given, source.split_seed)
    classes = tuple(categories.values())
    return DetectionData(source.name, classes, *splits, (*split_notes, *notes), category_ids=tuple(categories))


def read_parallel(source: Source) -> ParallelText:
    """Return raw parallel text, which is read on access, and here for its duplicates."""
    card, files = _open(source)
    given = {split: PairFiles(first, second) for split, [first, second] in files.items()}
    splits, split_note = three_splits(given, card.percent, whole="your files")
    first, second = (path.name.removesuffix(".gz").rpartition(".")[2] for path in files["train"])
    notes = (split_note or FILES, *overlap_notes((pair for pair in files.pairs() if all(pair)) for files in splits))
    return ParallelText(source.name, first, second, dict(zip(SPLITS, splits, strict=True)), "raw", notes)
