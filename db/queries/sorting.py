"""Sort rows of results, and pivot them to one column per metric."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from db.queries.statistics import AGGREGATES
from db.store.rows import Row
from harness.errors import unknown_name
from harness.trials.metric import TEST, MetricName

METRIC_COLUMNS = (*AGGREGATES, "published", "pooled")
"""Columns of a row that describe its metric."""


def sort_key(value: Any) -> tuple[int, float, str]:
    """Return a key that sorts values of any type: None first, then numbers by size, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, value if isinstance(value, str) else repr(value)


def pivot(rows: Sequence[Row]) -> list[Row]:
    """Merge the rows of a label into one: the aggregate ``mean`` of ``accuracy`` is the column ``accuracy mean``.

    Args:
        rows: as `db.queries.results.results` returns them, those of a label next to each other.
    """
    names = {row["metric"] for row in rows} - {None}
    metrics = sorted(names, key=lambda name: (MetricName.parse(name).split != TEST, name))
    aggregates = [name for name in (rows[0] if rows else ()) if name in METRIC_COLUMNS]
    pivoted = []
    for _, group in groupby(rows, lambda row: repr(_label(row))):
        by_metric = {row["metric"]: row for row in group}
        first = next(iter(by_metric.values()))
        columns = {
            f"{metric} {name}": by_metric[metric][name] if metric in by_metric else 0 if name == "n" else None
            for metric in metrics
            for name in aggregates
        }
        pivoted.append({**_label(first), **columns, "state": first["state"]})
    return pivoted


def sort_rows(rows: Sequence[Row], keys: Sequence[str], limit: int | None = None) -> list[Row]:
    """Return the first `limit` rows sorted by `keys`; rows without a value are always last.

    Args:
        rows: rows with the same columns.
        keys: columns, parameters or overrides; ``-mean`` sorts in descending order.
        limit: None: all.

    Raises:
        InputError: no row has such a key.
    """
    result = list(rows)
    holders = [holder for row in rows for holder in (row, row.get("params", {}), row.get("overrides", {}))]
    for key in reversed(keys):
        name = key.removeprefix("-")
        if rows and not any(name in holder for holder in holders):
            known = {name for holder in holders for name in holder} - {"params", "overrides"}
            raise unknown_name("key to sort by", name, known)
        result.sort(key=lambda row: sort_key(_value(row, name)), reverse=key != name)
        result.sort(key=lambda row: _value(row, name) is None)
    return result[:limit]


def _label(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (*METRIC_COLUMNS, "metric", "state")}


def _value(row: Row, name: str) -> Any:
    """Return a column, parameter or override of a row."""
    return row[name] if name in row else row.get("params", {}).get(name, row.get("overrides", {}).get(name))
