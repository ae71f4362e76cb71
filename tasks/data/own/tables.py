"""Readers of a user's own csv and JSON lines: labeled or scored texts and pairs, choices, and questions with answers.

All raise InputError, which names file and line, for what does not parse or fit.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from dropbench.harness.errors import InputError, check_text, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.card import CARD, Card, describe
from dropbench.tasks.data.classification import ChoiceData, ChoiceSplit
from dropbench.tasks.data.dataset import DATASETS
from dropbench.tasks.data.lines import single_spaces
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import Data
from dropbench.tasks.data.splits import overlap_notes, three_splits
from dropbench.tasks.data.text.glue import choice_split
from dropbench.tasks.data.text.labeled_text import csv_table
from dropbench.tasks.data.text.questions import QuestionData, answers_of, question_split
from dropbench.tasks.data.text.scored import ScoredData, ScoredSplit, finite_number
from dropbench.tasks.data.text.snli import TABLES, Row, json_rows

FILES = "splits as in the files"
WHOLE, NUMBER = re.compile(r"[+-]?\d{1,999}"), re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
MIN_ROWS = 20
"""Rows of train from which on a class of a single one is an error, unless the card lists it."""


def open_files(source: Source) -> tuple[Card, dict[Split, list[Path]]]:
    """Return the card of a set, and the files of each split that has some."""
    _, card, splits = describe(DATASETS.get(source.name), source.folder)
    return card, {split: [source.folder / name for name in names] for split, names in splits.items()}


def _value(path: Path, line: int, row: Mapping[str, Any], name: str, *, spaces: bool = False) -> str:
    """Return the text of a column, with single spaces, or with its own `spaces`."""
    if name not in row:
        hint = f"among {', '.join(row)[:200]}: name the columns, and a csv's separator, in {CARD}"
        raise InputError(f"{path}:{line}: no column '{name}' {hint}")
    if not isinstance(value := row[name], str | int | float) or isinstance(value, bool):
        given = json.dumps(value)[:40]
        raise InputError(f"{path}:{line}: {name} is {given}: expected text or a whole number")
    check_text(str(value), f"{path}:{line}: {name}")
    return str(value) if spaces else single_spaces(str(value))


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
    card, files = open_files(source)
    if card.answers:
        return _questions(source, card, files, rows_of)
    names, label = [*card.text, *card.choices, card.score or card.label], len(card.text) + len(card.choices)
    names += filter(None, [card.group])
    tables = {
        split: [(line, [_value(path, line, row, name) for name in names]) for line, row in rows_of(path, card) if row]
        for split, [path] in files.items()
    }
    if card.score:
        return _scored(source, card, files, tables)
    data_type, split_type = (ChoiceData, partial(_choices, card)) if card.choices else TABLES[len(card.text)]
    given_classes = card.choices or card.classes
    classes = given_classes or _classes(files["train"][0], card.label, {values[label] for _, values in tables["train"]})
    if not given_classes:
        _require_repeated(files["train"][0], card.label, [(line, values[label]) for line, values in tables["train"]])
    numbers = {name: number for number, name in enumerate(classes)}
    if card.choices:  # a label is the number of a choice, or the name of its column
        numbers = {**{str(number): number for number in range(len(classes))}, **numbers}
    given, groups, notes = dict[Split, Any](), dict[Split, Sequence[str]](), list[str]()
    for split, table in tables.items():
        for line, values in table:
            if values[label] not in numbers:
                known = f"{', '.join(classes)[:200]}, the classes of {'the card' if given_classes else 'train'}"
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
    duplicates = overlap_notes(zip(*list(vars(rows).values())[:-1], strict=True) for rows in splits)
    return cast(Data, data_type(source.name, classes, *splits, (split_note or FILES, *notes, *duplicates)))


def _require_repeated(path: Path, label: str, rows: Sequence[tuple[int, str]]) -> None:
    """Raise InputError for a class of a single row among many others: a slip, or too little to train and test on."""
    counts = Counter(name for _, name in rows)
    for line, name in rows if len(rows) >= MIN_ROWS else ():
        if name and counts[name] == 1:
            advice = f"correct it, or list all classes in {CARD}"
            raise InputError(f"{path}:{line}: {label} '{name[:40]}': the only row of its class: {advice}")


def _choices(card: Card, *columns: Any) -> ChoiceSplit:
    """Return the split of a table's columns, whose second text, if there are two, begins each choice."""
    *texts, labels = columns
    starts = texts[1] if len(card.text) > 1 else [""] * len(labels)
    return choice_split(texts[0], starts, texts[len(card.text) :], labels)


def _questions(
    source: Source, card: Card, files: Mapping[Split, list[Path]], rows_of: Callable[[Path, Card], Iterator[Row]]
) -> QuestionData:
    """Return questions with their answers in a context."""
    given, groups = dict[Split, Any](), dict[Split, Sequence[str]]()
    for split, [path] in files.items():
        rows = list[Any]()
        for line, row in rows_of(path, card):
            if not row:
                continue
            names = [*card.text, *filter(None, [card.group])]
            question, context, *group = (_value(path, line, row, name, spaces=True) for name in names)
            if card.answers not in row:
                _value(path, line, row, card.answers)  # whose error names it
            answers = answers_of(row[card.answers], context, f"{path}:{line}: {card.answers}")
            if answers[0][1] < 0:
                given_answer = f"{card.answers} '{answers[0][0][:40]}'"
                raise InputError(f"{path}:{line}: {given_answer}: not in the {card.text[1]} as written")
            rows.append((*group, question, context, answers))
        if not rows:
            raise InputError(f"{path}: no rows with text: expected one at least")
        given[split] = question_split(row[-3:] for row in rows)
        groups |= {split: [row[0] for row in rows]} if card.group else {}
    (train, dev, test), split_note = three_splits(given, card.percent, groups, "your files", source.split_seed)
    duplicates = overlap_notes(zip(rows.questions, rows.contexts, strict=True) for rows in (train, dev, test))
    return QuestionData(source.name, (), train, dev, test, (split_note or FILES, *duplicates))


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


read_csv = partial(_read_table, lambda path, card: csv_table(path, card.separator))
"""Read labeled texts or pairs from files of separated values with the columns' names in the first line."""
read_jsonl = partial(_read_table, lambda path, card: json_rows(path))
"""Read labeled texts or pairs from lines of JSON objects."""
