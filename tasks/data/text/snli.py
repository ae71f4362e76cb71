"""Readers of SNLI: pairs of a premise and a hypothesis with their relation, as lines of JSON or as a table.

- `snli_1.0_*.jsonl`: one object per line, with gold_label, sentence1 and sentence2.
- `snli_1.0_*.txt`: tab-separated columns, named in the first line, including these three.

Pairs without agreement of the annotators have the gold label "-". They are left out, as is usual. Both readers raise
InputError, which names file and line, if a line does not parse or its label is unknown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness.errors import InputError
from tasks.data.classification import ClassificationData, LabeledSplit, Labels
from tasks.data.dataset import Unit
from tasks.data.lines import single_spaces, stream_lines
from tasks.data.locate import Source

LABEL, PREMISE, HYPOTHESIS = FIELDS = ("gold_label", "sentence1", "sentence2")
UNLABELED = "-"
Pair = tuple[int, str, str, str]
"""Line number, label, premise, hypothesis."""


@dataclass(frozen=True, eq=False)
class PairSplit(LabeledSplit):
    """Pairs of texts with single spaces."""

    premises: tuple[str, ...]
    hypotheses: tuple[str, ...]
    labels: Labels


@dataclass(frozen=True, eq=False)
class PairData(ClassificationData[PairSplit]):
    """Pairs with one label each; `left_out` (unit → split → number) counts those without a label or a text."""

    kind: ClassVar[str] = "textual-entailment"

    left_out: Mapping[Unit, Mapping[str, int]] = field(default_factory=dict)


def _read(pairs: Callable[[Path], Iterator[Pair]], source: Source) -> PairData:
    classes = source.dataset.class_names
    (train, dev, test), left_out = zip(*(_split(path, pairs(path), classes) for path in source.files), strict=True)
    notes = [
        f"{count:,} pair{'s' * (count > 1)} of {path.name} without {missing} left out"
        for path, counts in zip(source.files, left_out, strict=True)
        for missing, count in counts.items()
    ]
    totals = {name: counts.total() for name, counts in zip(("train", "dev", "test"), left_out, strict=True)}
    return PairData(source.name, classes, train, dev, test, ("splits as published", *notes), {"rows": totals})


def _split(path: Path, pairs: Iterator[Pair], classes: tuple[str, ...]) -> tuple[PairSplit, Counter[str]]:
    """Return the pairs of a file, and the number of pairs left out by what they lack."""
    numbers = {name: number for number, name in enumerate(classes)}
    labels: list[int] = []
    premises: list[str] = []
    hypotheses: list[str] = []
    missing_counts: Counter[str] = Counter()
    for line, label, *texts in pairs:
        premise, hypothesis = map(single_spaces, texts)
        if label == UNLABELED:
            missing_counts["a gold label"] += 1
        elif label not in numbers:
            expected = f"{', '.join(classes)} or {UNLABELED}"
            raise InputError(f"{path}:{line}: {LABEL} '{label[:40]}': expected {expected}")
        elif not (premise and hypothesis):
            missing_counts["a text"] += 1
        else:
            labels.append(numbers[label])
            premises.append(premise)
            hypotheses.append(hypothesis)
    return PairSplit(tuple(premises), tuple(hypotheses), np.array(labels, np.int64)), missing_counts


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line; raise InputError for a line that is no JSON object."""
    for number, line in stream_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}: expected a JSON object")
        yield number, row


def _json_pairs(path: Path) -> Iterator[Pair]:
    for number, row in json_rows(path):
        if not all(isinstance(row.get(name), str) for name in FIELDS):
            raise InputError(f"{path}:{number}: expected a JSON object with the strings {', '.join(FIELDS)}")
        yield number, row[LABEL], row[PREMISE], row[HYPOTHESIS]


def _table_pairs(path: Path) -> Iterator[Pair]:
    lines = stream_lines(path)
    _, header = next(lines)
    names = header.split("\t")
    for name in FIELDS:
        if names.count(name) != 1:
            problem = "several columns" if name in names else "no column"
            raise InputError(f"{path}:1: {problem} {name}: expected tab-separated names with {', '.join(FIELDS)}")
    label, premise, hypothesis = (names.index(name) for name in FIELDS)
    for number, line in lines:
        if not line.strip():
            continue
        # The published rows have all tabs; a copy may lack those after the last annotator.
        row = line.split("\t")
        if not max(label, premise, hypothesis) < len(row) <= len(names):
            raise InputError(f"{path}:{number}: {len(row)} columns: expected {len(names)}, as named in line 1")
        yield number, row[label], row[premise], row[hypothesis]


read_jsonl = partial(_read, _json_pairs)
"""Read three files of JSON lines."""
read_table = partial(_read, _table_pairs)
"""Read three files of tab-separated columns."""
