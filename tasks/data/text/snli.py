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

from dropbench.harness.errors import InputError, check_text, count_of
from dropbench.tasks.data.classification import (
    ClassificationData,
    LabeledSplit,
    Labels,
    TextClassificationData,
    TextSplit,
)
from dropbench.tasks.data.dataset import Unit
from dropbench.tasks.data.lines import single_spaces, stream_lines
from dropbench.tasks.data.locate import Source

LABEL, PREMISE, HYPOTHESIS = FIELDS = ("gold_label", "sentence1", "sentence2")
UNLABELED = "-"
Row = tuple[int, dict[str, Any]]
"""Line number, and values by column."""


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


TABLES: dict[int, Any] = {1: (TextClassificationData, TextSplit), 2: (PairData, PairSplit)}
"""Number of columns of text → types of the data and of a split."""


def _read(rows_of: Callable[[Path], Iterator[Row]], source: Source) -> PairData:
    classes = source.dataset.class_names
    (train, dev, test), left_out = zip(*(_split(path, rows_of(path), classes) for path in source.files), strict=True)
    notes = [
        f"{count_of(count, 'pair')} of {path.name} without {missing} left out"
        for path, counts in zip(source.files, left_out, strict=True)
        for missing, count in counts.items()
    ]
    totals = {name: counts.total() for name, counts in zip(("train", "dev", "test"), left_out, strict=True)}
    return PairData(source.name, classes, train, dev, test, ("splits as published", *notes), {"rows": totals})


def _split(path: Path, rows: Iterator[Row], classes: tuple[str, ...]) -> tuple[PairSplit, Counter[str]]:
    """Return the pairs of a file, and the number of pairs left out by what they lack."""
    numbers = {name: number for number, name in enumerate(classes)}
    pairs: list[tuple[str, str, int]] = []
    missing_counts: Counter[str] = Counter()
    for line, row in rows:
        if not all(isinstance(row.get(name), str) for name in FIELDS):
            raise InputError(f"{path}:{line}: expected a JSON object with the strings {', '.join(FIELDS)}")
        for name in FIELDS:
            check_text(row[name], f"{path}:{line}: {name}")
        label, premise, hypothesis = row[LABEL], single_spaces(row[PREMISE]), single_spaces(row[HYPOTHESIS])
        if label == UNLABELED:
            missing_counts["a gold label"] += 1
        elif label not in numbers:
            expected = f"{', '.join(classes)} or {UNLABELED}"
            raise InputError(f"{path}:{line}: {LABEL} '{label[:40]}': expected {expected}")
        elif not (premise and hypothesis):
            missing_counts["a text"] += 1
        else:
            pairs.append((premise, hypothesis, numbers[label]))
    premises, hypotheses, labels = zip(*pairs, strict=True) if pairs else ((), (), ())
    return PairSplit(premises, hypotheses, np.array(labels, np.int64)), missing_counts


def json_rows(path: Path) -> Iterator[Row]:
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


def _table_rows(path: Path) -> Iterator[Row]:
    lines = stream_lines(path)
    _, header = next(lines)
    names = header.split("\t")
    for name in FIELDS:
        if names.count(name) != 1:
            problem = "several columns" if name in names else "no column"
            raise InputError(f"{path}:1: {problem} {name}: expected tab-separated names with {', '.join(FIELDS)}")
    min_columns = 1 + max(names.index(name) for name in FIELDS)
    for number, line in lines:
        if not line.strip():
            continue
        # The published rows have all tabs; a copy may lack those after the last annotator.
        row = line.split("\t")
        if not min_columns <= len(row) <= len(names):
            raise InputError(f"{path}:{number}: {count_of(len(row), 'column')}: expected {len(names)}, as in line 1")
        yield number, dict(zip(names, row, strict=False))


read_jsonl = partial(_read, json_rows)
"""Read three files of JSON lines."""
read_table = partial(_read, _table_rows)
"""Read three files of tab-separated columns."""
