"""Results over configurations: means over seeds, as rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from db import filters
from db.aggregates import USUAL, aggregate, summarize
from db.connection import reading
from db.filters import stored_name
from db.groups import Group, Groups, Places, grouped
from db.models import FINAL, Metrics, Trials
from db.published import Published
from db.rows import among
from db.shape import in_order
from db.store import Store
from harness.errors import unknown_name

__all__ = ["curves", "final_values", "results", "summarize"]

Row = dict[str, Any]

FIRST_TOLD = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "succeeded")
"""Where seeds differ in their state, the first of these is the configuration's."""

SPLITS = ("dev", "train", "test")
"""Where a curve without a split is looked for, in this order: few are measured on test but at the end."""


def final_values(store: Store, ids: Sequence[str], metric: str) -> dict[str, float | None]:
    """The final value of a metric by trial id, of the trials that have one; None where it is no finite number."""
    query = select(Metrics.c.trial_id, Metrics.c.value).where(
        Metrics.c.step == FINAL, Metrics.c.name == stored_name(metric)
    )
    found: dict[str, float | None] = {}
    with reading(store.engine) as connection:
        for id, value in connection.execute(query.where(among(connection, Metrics.c.trial_id, ids))):
            found[id] = value
    return found


def results(
    store: Store,
    words: Sequence[str] = (),
    *,
    ids: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    group_by: Sequence[str] = (),
    aggregates: Sequence[str] = USUAL,
) -> list[Row]:
    """One row a suite, configuration and metric; with `group_by`, one row for each of these keys' values and metric.

    Args:
        store: the database.
        words: a filter (`db.filters`).
        ids: of these trials alone.
        metrics: names, ``accuracy`` meaning the test set's, ``all`` every final value; default: the test set's.
        group_by: columns of a configuration, ``suite``, ``seed``, parameters of regularizers, or overrides.
        aggregates: what is told of the values over seeds (`db.aggregates`).

    Returns:
        suite, task, data, model, regularizer, params, schedule, align, preset, overrides, metric, the aggregates,
        published, state; with `group_by`, its keys instead of the columns before `metric`, and no `published`. What
        has no result yet has a row with n = 0.

    Raises:
        InputError: a word, metric, key or aggregate is unknown.
    """
    aggregate([], aggregates)  # unknown ones are told even where there is nothing to aggregate
    with reading(store.engine) as connection:
        found = filters.parse(connection, words)
        if ids is not None:
            found.clauses.append(among(connection, Trials.c.id, ids))
        asked = [name if name == "all" else stored_name(name) for name in metrics]
        groups = grouped(connection, found, group_by, asked)
    published = Published()
    named = [name for name in metrics if name != "all"]
    return [
        row
        for group in sorted(groups, key=_order)
        for row in _rows(group, published, named, aggregates, grouped=bool(group_by))
    ]  # fmt: skip


def curves(
    store: Store,
    words: Sequence[str],
    name: str,
    *,
    group_by: Sequence[str] = (),
    aggregates: Sequence[str] = USUAL,
    every: int = 1,
) -> list[Row]:
    """The points of a curve by configuration: a row for each step that some seed has a point at.

    Args:
        store: the database.
        words: a filter (`db.filters`).
        name: ``train/loss``; without a split the dev set's, else the training's.
        group_by: as of `results`.
        aggregates: likewise.
        every: of each configuration only every so many points, from the first, and the last.

    Returns:
        the label's columns as `results` has them, metric, step, the aggregates.

    Raises:
        InputError: a word, key or aggregate is unknown, or no trial has such a curve.
    """
    aggregate([], aggregates)
    names = [name] if "/" in name else [f"{split}/{name}" for split in SPLITS]
    with reading(store.engine) as connection:
        found = filters.parse(connection, words)
        places = Places(found, group_by)
        groups = Groups(connection, places, group_by)
        for full in names:
            points = _points(connection, groups, full)
            if points:
                return _curve_rows(points, full, aggregates, every)
        known = set(connection.scalars(select(Metrics.c.name).where(Metrics.c.step != FINAL).distinct()))
    if known and known.isdisjoint(names):
        raise unknown_name("curve", name, known)
    return []


def _points(connection: Connection, groups: Groups, name: str) -> list[tuple[Group, dict[int, list[float | None]]]]:
    """The values by step of each group that has such a curve."""
    found: dict[int, tuple[Group, dict[int, list[float | None]]]] = {}
    for place, points in groups.places.points(connection, name):
        group = groups.at(place)
        by_step = found.setdefault(id(group), (group, {}))[1]
        for *_, step, value in points:
            by_step.setdefault(step, []).append(value)
    return sorted(found.values(), key=lambda one: _order(one[0]))


def _curve_rows(
    points: Iterable[tuple[Group, dict[int, list[float | None]]]], name: str, aggregates: Sequence[str], every: int
) -> list[Row]:
    rows = []
    for group, by_step in points:
        label = {**group.label, "metric": name.removeprefix("test/")}
        steps = sorted(by_step)
        for step in [*steps[:-1:every], steps[-1]]:
            rows.append({**label, "step": step, **aggregate(by_step[step], aggregates)})
    return rows


def _rows(
    group: Group, published: Published, asked: Sequence[str], aggregates: Sequence[str], *, grouped: bool
) -> Iterable[Row]:
    state = min(group.states, key=FIRST_TOLD.index)
    names = sorted(group.values, key=lambda name: (not name.startswith("test/"), name))
    named: list[str | None] = [*names] or [*asked]
    for name in named or [None]:
        metric = name.removeprefix("test/") if name else None
        if not grouped:
            metric = metric or published.metric(group.label["suite"])
        row = {**group.label, "metric": metric, **aggregate(group.values.get(name, ()) if name else (), aggregates)}
        if not grouped:
            row["published"] = published.value(group.label, metric)
        yield {**row, "state": state}


def _order(group: Group) -> list[tuple[int, float, str]]:
    return [in_order(value) for value in group.label.values()]
