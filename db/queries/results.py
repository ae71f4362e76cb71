"""Results over configurations: means over seeds, as rows of plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from sqlalchemy import Connection, select

from db.queries.aggregates import DEFAULT_AGGREGATES, aggregate
from db.queries.declarations import Published
from db.queries.groups import Group, Groups, Pool, grouped
from db.queries.marks import mark_text
from db.queries.sorting import sort_key
from db.schema.connection import reading
from db.schema.tables import FINAL, Metrics, Trials
from db.store import filters
from db.store.rows import Row, in_list
from db.store.store import Store
from harness.errors import unknown_name
from harness.trials.metric import TEST, MetricName

STATE_PRIORITY = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "succeeded")
"""If the states of seeds differ, the first of these is the configuration's."""

CURVE_SPLITS = ("dev", "train", "test")
"""The splits of a curve without a split, in order of preference: few tasks measure test before the end."""


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
        words: a filter (`db.store.filters`).
        ids: only these trials.
        metrics: names, ``accuracy`` for the test set, ``all`` for every final value; default: those of the test set.
        group_by: columns of a configuration, ``suite``, ``seed``, parameters of regularizers, or overrides.
        aggregates: the aggregates over seeds (`db.queries.aggregates`).

    Returns:
        suite, task, data, model, regularizer, params, schedule, align, preset, overrides, metric, the aggregates,
        published, mark (of data other than the published ones), state; with `group_by`, its keys instead of the columns
        before `metric`, and instead of `published` the text `pooled`, such as ``3 configurations × 2 seeds``, None for
        a single configuration. A row without a result yet has n = 0.

    Raises:
        InputError: a word, metric, key or aggregate is unknown.
    """
    aggregate([], aggregates)  # report unknown ones even if there is nothing to aggregate
    with reading(store.engine) as connection:
        filter = filters.parse(connection, words)
        if ids is not None:
            filter.clauses.append(in_list(connection, Trials.c.id, ids))
        groups = sorted(grouped(connection, filter, group_by, metrics), key=_order)
    published = Published()
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
            by_step[step].add(config_id, (value,))
    rows = []
    for group, by_step in sorted(curves.values(), key=lambda curve: _order(curve[0])):
        label = {**group.label, "metric": name.label}
        steps = sorted(by_step)
        for step in [*steps[:-1:every], steps[-1]]:
            columns = _pooled(by_step[step], aggregates, grouped=bool(groups.group_by))
            rows.append({**label, "step": step, **columns, "mark": mark_text(group.marks)})
    return rows


def _rows(
    group: Group, published: Published, requested: Sequence[str], aggregates: Sequence[str], *, grouped: bool
) -> Iterable[Row]:
    state = min(group.states, key=STATE_PRIORITY.index)
    names = sorted(group.values, key=lambda name: (MetricName.parse(name).split != TEST, name))
    labels: list[str | None] = [MetricName.parse(name).label for name in names] or [*requested] or [None]
    for position, label in enumerate(labels):
        metric = label if grouped or label else published.metric(group.label["suite"])
        values = group.values[names[position]] if names else Pool()
        row = {**group.label, "metric": metric, **_pooled(values, aggregates, grouped=grouped)}
        if not grouped:
            row["published"] = published.value(group.label, metric)
        yield {**row, "mark": mark_text(group.marks), "state": state}


def _pooled(pool: Pool, aggregates: Sequence[str], *, grouped: bool) -> Row:
    """Return the aggregates of values; if `grouped`, also how many configurations and seeds, if several."""
    return {**aggregate(pool.values, aggregates), **({"pooled": str(pool) or None} if grouped else {})}


def _order(group: Group) -> list[tuple[int, float, str]]:
    return [sort_key(value) for value in group.label.values()]
