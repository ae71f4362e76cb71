"""Results over configurations: means over seeds, as rows of plain values, which can be sorted and pivoted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any

from sqlalchemy import Connection, func, select

from dropbench.db.queries.groups import Group, Groups, Pool, grouped
from dropbench.db.queries.marks import mark_text
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import FINAL, Configs, Metrics, Trials
from dropbench.db.statistics.seeds import AGGREGATES, DEFAULT_AGGREGATES, aggregate
from dropbench.db.store import filters
from dropbench.db.store.requests import PublishedValues, published_values
from dropbench.db.store.rows import Row, in_list
from dropbench.db.store.store import Store
from dropbench.harness.errors import count_of, unknown_name
from dropbench.harness.trials.metric import TEST, MetricName
from dropbench.harness.trials.trial import SYNTHETIC

STATE_PRIORITY = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "succeeded")
"""If the states of seeds differ, the first of these is the configuration's."""

CURVE_SPLITS = ("dev", "train", "test")
"""The splits of a curve without a split, in order of preference: few tasks measure test before the end."""

METRIC_COLUMNS = (*AGGREGATES, "published", "pooled")
"""Columns of a row that describe its metric."""

MAX_VALUES = 5
"""Values of a key that a message names."""


def final_values(store: Store, ids: Sequence[str], metric: str) -> dict[str, float | None]:
    """Return a metric's final value by trial id, for trials that have one; None if it is not a finite number."""
    query = select(Metrics.c.trial_id, Metrics.c.value).where(Metrics.c.step == FINAL)
    query = query.where(Metrics.c.name == str(MetricName.parse(metric)))
    with reading(store.engine) as connection:
        return dict(connection.execute(query.where(in_list(connection, Metrics.c.trial_id, ids))).all())


def results(
    store: Store,
    words: Sequence[str] = (),
    *,
    ids: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    group_by: Sequence[str] = (),
    aggregates: Sequence[str] = DEFAULT_AGGREGATES,
) -> list[Row]:
    """Return one row per suite, configuration and metric, or per metric and values of the `group_by` keys.

    Args:
        store: the database.
        words: a filter (`dropbench.db.store.filters`).
        ids: only these trials.
        metrics: names, ``accuracy`` for the test set, ``all`` for every final value; default: those of the test set.
        group_by: columns of a configuration, ``suite``, ``seed``, parameters of regularizers, or overrides.
        aggregates: the aggregates over seeds (`dropbench.db.statistics.seeds`).

    Returns:
        suite, task, data, fingerprint, model, regularizer, params, schedule, align, preset, overrides, result_versions
        (those above 1), libraries (only in a database with different versions of a library), metric, the aggregates,
        published, mark (of data other than the published ones, of what distinguishes rows that are equal otherwise, and
        why trials are skipped), state; with `group_by`, its keys instead of the columns before `metric`, and instead of
        `published` the text `pooled`, such as ``3 configurations × 2 seeds``, None for a single configuration. A row
        without a result yet has n = 0.

    Raises:
        InputError: a word, metric, key or aggregate is unknown.
    """
    aggregate([], aggregates)  # report unknown ones even if there is nothing to aggregate
    with reading(store.engine) as connection:
        filter = filters.parse(connection, words)
        if ids is not None:
            filter.clauses.append(in_list(connection, Trials.c.id, ids))
        groups = sorted(grouped(connection, filter, group_by, metrics), key=_order)
        suites = set() if group_by else {group.label["suite"] for group in groups} - {None}
        published = published_values(connection, suites)
    requested = [MetricName.parse(name).label for name in metrics if name != "all"]
    rows = (_rows(group, published, requested, aggregates, grouped=bool(group_by)) for group in groups)
    return list(chain.from_iterable(rows))


def curves(
    store: Store,
    words: Sequence[str],
    name: str,
    *,
    group_by: Sequence[str] = (),
    aggregates: Sequence[str] = DEFAULT_AGGREGATES,
    every: int = 1,
) -> list[Row]:
    """Return the points of a curve by configuration: a row for each step at which any seed has a point.

    The curve `name` is such as ``train/loss``; without a split, the first of `CURVE_SPLITS` that has such a curve. Only
    `every` n-th point of a configuration is returned, starting with the first, and the last. Other arguments are those
    of `results`.

    Returns:
        the label's columns as of `results`, metric, step, the aggregates, mark; with `group_by`, pooled.

    Raises:
        InputError: a word, key or aggregate is unknown, or no trial has such a curve.
    """
    aggregate([], aggregates)
    names = [*dict.fromkeys(MetricName.parse(name, split) for split in CURVE_SPLITS)]
    with reading(store.engine) as connection:
        filter = filters.parse(connection, words)
        groups = Groups(connection, filter, group_by)
        for full_name in names:
            if rows := _curve_rows(connection, groups, full_name, aggregates, every):
                return rows
        known = set(connection.scalars(select(Metrics.c.name).where(Metrics.c.step != FINAL).distinct()))
    if known and known.isdisjoint(map(str, names)):
        raise unknown_name("curve", name, known)
    return []


def _curve_rows(
    connection: Connection, groups: Groups, name: MetricName, aggregates: Sequence[str], every: int
) -> list[Row]:
    curves: dict[int, tuple[Group, defaultdict[int, Pool]]] = {}
    for key, points in groups.keys.points(connection, str(name)):
        group = groups.at(key)
        by_step = curves.setdefault(id(group), (group, defaultdict(Pool)))[1]
        for config_id, *_, step, value in points:
            by_step[step].add(config_id, (value,), value is not None)
    rows = []
    for group, by_step in sorted(curves.values(), key=lambda curve: _order(curve[0])):
        label = {**group.label, "metric": name.label}
        steps = sorted(by_step)
        for step in [*steps[:-1:every], steps[-1]]:
            columns = _pooled(by_step[step], aggregates, grouped=bool(groups.group_by))
            rows.append({**label, "step": step, **columns, "mark": mark_text(group.marks)})
    return rows


def _rows(
    group: Group, published: PublishedValues, requested: Sequence[str], aggregates: Sequence[str], *, grouped: bool
) -> Iterable[Row]:
    of_cell = published.get((group.label.get("suite"), group.config_id), {})
    state = min(group.states, key=STATE_PRIORITY.index)
    names = sorted(group.values, key=lambda name: (MetricName.parse(name).split != TEST, name))
    labels: list[str | None] = [MetricName.parse(name).label for name in names] or [*requested] or [None]
    for position, label in enumerate(labels):
        metric = label or next(iter(of_cell), None)
        values = group.values[names[position]] if names else Pool()
        row = {**group.label, "metric": metric, **_pooled(values, aggregates, grouped=grouped)}
        if not grouped:
            synthetic = group.label["data"].endswith(SYNTHETIC)  # no source measured on generated data
            row["published"] = None if synthetic or group.label.get("seeds") else of_cell.get(metric or "")
        yield {**row, "mark": mark_text(group.marks), "state": state}


def _pooled(pool: Pool, aggregates: Sequence[str], *, grouped: bool) -> Row:
    """Return the aggregates of values; if `grouped`, also how many configurations and seeds, if several."""
    return {**aggregate(pool.values, aggregates), **({"pooled": str(pool) or None} if grouped else {})}


def _order(group: Group) -> list[tuple[int, float, str]]:
    return [sort_key(value) for value in group.label.values()]


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
        rows: as `results` returns them, those of a label next to each other.
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


def explain_empty(store: Store, words: Sequence[str]) -> str:
    """Return why a filter has no results: the words without which trials match, and what those trials have instead."""
    terms: list[list[str]] = [[]]
    for word in words:
        terms[-1].append(word)
        if word != "not":
            terms.append([])
    parts = []
    with reading(store.engine) as connection:
        for index, term in enumerate(terms[:-1]):
            rest = [word for other in terms[:index] + terms[index + 1 :] for word in other]
            clauses = filters.parse(connection, rest).clauses
            if count := connection.scalar(select(func.count()).select_from(Trials).where(*clauses)):
                key = term[-1].partition("=")[0].rstrip("!")
                values = _distinct_values(connection, key, clauses) if key in filters.COLUMNS else []
                instead = f" ({key}={','.join(values)})" if values else ""
                parts.append(f"without `{' '.join(term)}`, {count_of(count, 'trial')}{instead}")
    if parts:
        return f"no results: no trial matches '{' '.join(words)}'; {', '.join(parts)}"
    return "no results: run `dropbench run SUITE`"


def _distinct_values(connection: Connection, key: str, clauses: Sequence[Any]) -> list[str]:
    query = select(Configs.c[key]).join(Trials, Trials.c.config_id == Configs.c.id).where(*clauses).distinct()
    return list(connection.scalars(query.order_by(Configs.c[key]).limit(MAX_VALUES)))
