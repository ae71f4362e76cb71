"""Readers of files as GLUE, SuperGLUE and SWAG have them: one table or one file of JSON lines a split.

- Tables (`*.tsv`, and `*.csv` of the STS benchmark) have columns separated by tabs, without quotes. Line 1 names the
  columns, unless the card does.
- JSON lines have an object each.
- SWAG's csv has quoted fields, separated by commas.

The labels of the official test files are not public, so the official dev files are test here. A file `val.tsv` is dev,
if there is one; else dev is 10 % of train. Rows without a text or a label are left out, with a note. The readers raise
InputError, which names file and line, for a missing column or an unknown label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from dropbench.harness.errors import InputError, check_text, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.classification import ChoiceData, ChoiceSplit
from dropbench.tasks.data.dataset import Dataset
from dropbench.tasks.data.lines import single_spaces, stream_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import Data
from dropbench.tasks.data.splits import three_splits
from dropbench.tasks.data.text.labeled_text import csv_table
from dropbench.tasks.data.text.scored import ScoredData, ScoredSplit, finite_number
from dropbench.tasks.data.text.snli import TABLES, Row, json_rows

FILE_SPLITS: tuple[Split, ...] = ("train", "test", "dev")
"""The splits of the files of a layout, in order; the last file is optional."""
COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
"""The questions of COPA as they are asked after the premise (jiant, and most others)."""
OFFICIAL = "test is the official dev set, as labels of the official test set are not public"


def _table_rows(path: Path, dataset: Dataset, train: Path) -> Iterator[Row]:
    """Yield the rows of a table; one whose first line names no columns has those of train, as copies with val.tsv."""
    names = list(dataset.header) or next(stream_lines(train))[1].split("\t")
    for number, line in stream_lines(path):
        values = line.split("\t")
        if number > 1 or dataset.header or dataset.label not in values:
            yield number, dict(zip(names, values, strict=False))
        else:
            names = values


def _rows(path: Path, dataset: Dataset, train: Path) -> Iterator[Row]:
    if path.suffix == ".jsonl":
        return json_rows(path)
    return _table_rows(path, dataset, train) if path.suffix == ".tsv" or dataset.header else csv_table(path)


def _columns(
    path: Path, dataset: Dataset, train: Path, target: Callable[[Path, int, str, Dataset], Any]
) -> tuple[list[tuple[str, ...]], str]:
    """Return the rows of a file, texts before the target, as columns, and a note on rows that are left out."""
    choices = dataset.class_names if dataset.kind == ChoiceData.kind else ()
    names, rows, empty, number = (*dataset.texts, *choices, dataset.label), [], 0, 0
    for number, row in _rows(path, dataset, train):
        if number <= 2 and (missing := [name for name in names if name not in row]):
            raise InputError(f"{path}:{number}: no column '{missing[0]}' among {', '.join(map(str, row))[:200]}")
        values = [row.get(name) for name in names]
        texts = [single_spaces(str(value)) if value is not None else "" for value in values]
        if not all(texts):
            empty += 1
            continue
        for name, text in zip(names, texts, strict=True):
            check_text(text, f"{path}:{number}: {name}")
        rows.append((*texts[:-1], target(path, number, texts[-1], dataset)))
    if not rows:
        raise InputError(f"{path}: no rows with text: expected one at least")
    note = f"{count_of(empty, 'row')} of {path.name} without a text or a label left out" if empty else ""
    return list(zip(*rows, strict=True)), note


def _class(path: Path, line: int, label: str, dataset: Dataset) -> int:
    """Return the number of a class that is given by its name or its number."""
    names = dataset.class_names
    by_label = {**{str(number): number for number in range(len(names))}, **{name: n for n, name in enumerate(names)}}
    if label.lower() not in by_label:
        raise InputError(f"{path}:{line}: {dataset.label} '{label[:40]}': expected {', '.join(names)}")
    return by_label[label.lower()]


def _score(path: Path, line: int, label: str, dataset: Dataset) -> float:
    return finite_number(label, f"{path}:{line}: {dataset.label}")


def _read(target: Callable[[Path, int, str, Dataset], Any], split_of: Callable[[Any], Any], source: Source) -> Any:
    """Return train, dev and test, and notes."""
    read = [_columns(path, source.dataset, source.files[0], target) for path in source.files]
    given: dict[Split, Any] = {}
    for split, path, (columns, _) in zip(FILE_SPLITS, source.files, read, strict=False):
        try:
            given[split] = split_of(columns)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    splits, carved = three_splits(given, whole="the official train", seed=source.split_seed)
    return splits, tuple(filter(None, (OFFICIAL, carved, *(note for _, note in read))))


def read_classes(source: Source) -> Data:
    """Read texts, or pairs of texts, with a class each."""
    data_type, split_type = TABLES[len(source.dataset.texts)]

    def split_of(columns: list[Any]) -> Any:
        return split_type(*columns[:-1], np.array(columns[-1], np.int64))

    splits, notes = _read(_class, split_of, source)
    return cast(Data, data_type(source.name, source.dataset.class_names, *splits, notes))


def choice_split(
    texts: Sequence[str], starts: Sequence[str], choices: Sequence[Sequence[str]], labels: Sequence[int]
) -> ChoiceSplit:
    """Return the split of columns; each choice of a row begins with its start."""
    rows = zip(starts, zip(*choices, strict=True), strict=True)
    begun = tuple(tuple(single_spaces(f"{start} {choice}") for choice in row) for start, row in rows)
    return ChoiceSplit(tuple(texts), begun, np.array(labels, np.int64))


def _read_choices(split_of: Callable[[Any], ChoiceSplit], source: Source) -> ChoiceData:
    (train, dev, test), notes = _read(_class, split_of, source)
    return ChoiceData(source.name, source.dataset.class_names, train, dev, test, notes)


def _endings(columns: list[Any]) -> ChoiceSplit:
    return choice_split(columns[0], columns[1], columns[2:-1], columns[-1])


def _copa(columns: list[Any]) -> ChoiceSplit:
    premises, questions, *choices, labels = columns
    if unknown := {*questions} - {*COPA_QUESTIONS}:
        raise InputError(f"question '{min(unknown)[:40]}': expected {' or '.join(COPA_QUESTIONS)}")
    asked = [f"{premise} {COPA_QUESTIONS[name]}" for premise, name in zip(premises, questions, strict=True)]
    return choice_split(asked, [""] * len(asked), choices, labels)


read_copa = partial(_read_choices, _copa)
"""Read COPA: a premise, whose question is asked after it, and two choices."""
read_endings = partial(_read_choices, _endings)
"""Read SWAG: a sentence, and four endings of the sentence that follows it."""


def read_scores(source: Source) -> ScoredData:
    """Read texts, or pairs of texts, with a score each."""

    def split_of(columns: list[Any]) -> ScoredSplit:
        return ScoredSplit(tuple(zip(*columns[:-1], strict=True)), np.array(columns[-1], np.float64))

    splits, notes = _read(_score, split_of, source)
    train, dev, test = splits
    return ScoredData(source.name, (), train, dev, test, notes)


def read_benchmark(source: Source) -> ScoredData:
    """Read the files of the STS benchmark, whose columns have no names; the scores that GLUE hides stay unread."""
    header = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")
    return read_scores(replace(source, dataset=source.dataset.model_copy(update={"header": header})))
