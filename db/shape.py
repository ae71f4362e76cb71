"""Rows of results in another shape: a column a metric, sorted, cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from db.aggregates import AGGREGATES
from harness.errors import unknown_name

Row = dict[str, Any]

OF_METRICS = (*AGGREGATES, "published")
"""Columns of a row that speak of its metric."""


def in_order(value: Any) -> tuple[int, float, str]:
    """A key to sort values of any type by: nothing first, then numbers by size, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, value if isinstance(value, str) else repr(value)


def wide(rows: Sequence[Row]) -> list[Row]:
    """A row for all metrics of a label: the aggregate ``mean`` of ``accuracy`` is the column ``accuracy mean``.

    Args:
        rows: as `db.query.results` gives them, those of a label side by side.
    """
    metrics = sorted({row["metric"] for row in rows} - {None}, key=lambda name: ("/" in name, name))
    told = [name for name in (rows[0] if rows else ()) if name in OF_METRICS]
    found = []
    for _, same in groupby(rows, lambda row: repr(_label(row))):
        by_metric = {row["metric"]: row for row in same}
        first = next(iter(by_metric.values()))
        columns = {
            f"{metric} {name}": by_metric[metric][name] if metric in by_metric else 0 if name == "n" else None
            for metric in metrics
            for name in told
        }
        found.append({**_label(first), **columns, "state": first["state"]})
    return found


def ordered(rows: Sequence[Row], keys: Sequence[str], limit: int | None = None) -> list[Row]:
    """Rows by the values of `keys`, what has none always last; the first `limit` of them.

    Args:
        rows: of one kind.
        keys: columns, parameters or overrides; ``-mean``: the largest first.
        limit: None: all.

    Raises:
        InputError: no row has such a key.
    """
    found = list(rows)
    for key in reversed(keys):
        name = key.removeprefix("-")
        if rows and not any(_has(row, name) for row in rows):
            inner = {inner for row in rows for holder in _holders(row) for inner in holder}
            raise unknown_name("key to sort by", name, {*rows[0], *inner} - {"params", "overrides"})
        found.sort(key=lambda row: in_order(_value(row, name)), reverse=key != name)
        found.sort(key=lambda row: _value(row, name) is None)
    return found[:limit]


def _label(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (*OF_METRICS, "metric", "state")}


def _holders(row: Row) -> list[Mapping[str, Any]]:
    return [row[name] for name in ("params", "overrides") if name in row]


def _has(row: Row, name: str) -> bool:
    return name in row or any(name in holder for holder in _holders(row))


def _value(row: Row, name: str) -> Any:
    if name in row:
        return row[name]
    return next((holder[name] for holder in _holders(row) if name in holder), None)
