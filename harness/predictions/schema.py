"""The content of a file of predictions: a header, and one row per example. Files are not trusted: rows are checked."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dropbench.harness.errors import InputError
from dropbench.harness.validation import FiniteModel

FORMAT = 1
ID = re.compile(r"[0-9a-f]{12}(-[1-9][0-9]{0,8})?")

Kind = Literal["class", "classes", "count", "number", "numbers", "matrix", "text"]
"""The type of a column: the number of a class, a list of them, a whole number from 0, a number (None: not measured), a
list of numbers, a list of such lists, or a text."""
Row = dict[str, Any]
"""The values of an example by column; ``id`` and ``index`` are columns of every file."""


class Ratio(FiniteModel):
    """A metric that is a ratio of sums over examples, such as accuracy, F1 or the loss per token.

    Attributes:
        sum: column of the numerator.
        over: columns of the denominator, which are added; none: the number of examples.
        scale: factor, such as 100 for percent.
        exponential: whether the metric is e to the power of the scaled ratio, as perplexity is.
    """

    sum: str
    over: tuple[str, ...] = ()
    scale: float = 1.0
    exponential: bool = False

    def counts(self, row: Mapping[str, Any]) -> tuple[float, float]:
        """Return numerator and denominator of an example; (0, 0) if a value was not measured."""
        values = [row[self.sum], *(row[name] for name in self.over)]
        if None in values:
            return 0.0, 0.0
        return float(values[0]), float(sum(values[1:])) if self.over else 1.0

    def value(self, numerator: float, denominator: float) -> float:
        """Return the metric; a division by zero gives 0."""
        ratio = self.scale * numerator / denominator if denominator else 0.0
        return math.exp(min(ratio, 700.0)) if self.exponential else ratio


class Header(FiniteModel):
    """The first line of a file.

    Attributes:
        trial, task, data, fingerprint, split: where the predictions come from.
        rows: number of rows.
        columns: kinds of the columns besides ``id`` and ``index``.
        classes: names of the classes.
        metrics: the metrics of the split that are ratios of sums over the rows.
        corpus: options of the scorers of the other metrics, which need all rows at once, such as BLEU.
    """

    format: Literal[1]
    trial: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    task: str
    data: str
    fingerprint: str
    split: str
    rows: Annotated[int, Field(ge=0)]
    columns: dict[str, Kind]
    classes: tuple[str, ...] = ()
    metrics: dict[str, Ratio] = Field(default_factory=dict)
    corpus: dict[str, dict[str, str | bool]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _measures_numbers(self) -> Self:
        numeric = {name for name, kind in self.columns.items() if kind in ("number", "count")}
        for name, ratio in self.metrics.items():
            for column in (ratio.sum, *ratio.over):
                if column not in numeric:
                    raise ValueError(f"metric {name}: column '{column[:40]}': expected a column of numbers")
        return self

    def named(self, column: str, value: Any) -> Any:
        """Return the value of a column with the names of classes instead of their numbers."""
        kind = self.columns.get(column)
        if kind == "class":
            return self.classes[value]
        return [self.classes[number] for number in value] if kind == "classes" else value


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a split: `rows` in the order of the data, with the columns of `header`."""

    header: Header
    rows: list[Row]

    def metrics(self) -> dict[str, float]:
        """Return the metrics that are ratios of sums, computed from the rows."""
        values = {}
        for name, ratio in self.header.metrics.items():
            counts = [ratio.counts(row) for row in self.rows]
            values[name] = ratio.value(math.fsum(n for n, _ in counts), math.fsum(d for _, d in counts))
        return values


def content_id(*parts: str | bytes) -> str:
    """Return the id of an example by its content, 12 hexadecimal digits: the same in every order of the data."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:12]


def row_id(row: Any) -> str | None:
    """Return the id of a row of tensors, numbers and texts by its content; None for other rows."""
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    leaves = [leaf.tolist() if isinstance(leaf, Tensor) else leaf for leaf in tree_leaves(row)]
    return content_id(repr(leaves)) if all(isinstance(leaf, list | int | float | str) for leaf in leaves) else None


def unique_ids(ids: Iterable[str]) -> list[str]:
    """Return ids in which the repetitions of one end in -2, -3 and so on."""
    counts: dict[str, int] = {}
    unique = []
    for id in ids:
        counts[id] = count = counts.get(id, 0) + 1
        unique.append(id if count == 1 else f"{id}-{count}")
    return unique


def check_row(row: object, header: Header, where: str) -> Row:
    """Return a row if it has the columns of the header and their types; otherwise raise InputError."""
    if not isinstance(row, dict) or row.keys() != {"id", "index", *header.columns}:
        raise InputError(f"{where}: expected an object with id, index, {', '.join(header.columns)}")
    checks = {"id": isinstance(row["id"], str) and ID.fullmatch(row["id"]), "index": _is_count(row["index"])}
    checks |= {name: _CHECKS[kind](row[name], header) for name, kind in header.columns.items()}
    wrong = [name for name, valid in checks.items() if not valid]
    if wrong:
        name, expected = wrong[0], header.columns.get(wrong[0], f"a valid {wrong[0]}")
        raise InputError(f"{where}: {name}={str(row[name])[:40]}: expected {expected}")
    return row


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _is_class(value: object, header: Header) -> bool:
    return type(value) is int and 0 <= value < len(header.classes)


_CHECKS: dict[str, Callable[[Any, Header], bool]] = {
    "class": _is_class,
    "classes": lambda value, header: isinstance(value, list) and all(_is_class(item, header) for item in value),
    "count": lambda value, header: _is_count(value),
    "number": lambda value, header: value is None or _is_number(value),
    "numbers": lambda value, header: isinstance(value, list) and all(map(_is_number, value)),
    "matrix": lambda value, header: (
        isinstance(value, list) and all(isinstance(row, list) and all(map(_is_number, row)) for row in value)
    ),
    "text": lambda value, header: isinstance(value, str),
}
