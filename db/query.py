"""Results over configurations: means over seeds, as rows of plain values."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from db import filters
from db.connection import reading
from db.models import FINAL, Configs, Memberships, Metrics, Trials
from db.published import Published
from db.rows import chunks
from db.store import Store
from harness.errors import InputError, unknown_name
from harness.files import canonical_json

COLUMNS = ("task", "data", "model", "regularizer", "params", "schedule", "align", "preset", "overrides")
FIRST_TOLD = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "succeeded")
"""Where seeds differ in their state, the first of these is the configuration's."""


@dataclass(frozen=True)
class Summary:
    """Values over seeds: mean, sample standard deviation (None for n < 2), and how many."""

    mean: float | None
    std: float | None
    n: int


def summarize(values: Iterable[float | None]) -> Summary:
    """Mean and sample standard deviation of those that are numbers."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Summary(None, None, 0)
    return Summary(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, len(numbers))


def stored_name(metric: str) -> str:
    """``accuracy`` → ``test/accuracy``: a metric without a split is the test set's."""
    return metric if "/" in metric else f"test/{metric}"


def final_values(store: Store, ids: Sequence[str], metric: str) -> dict[str, float | None]:
    """The final value of a metric by trial id, of the trials that have one; None where it is no finite number."""
    query = select(Metrics.trial_id, Metrics.value).where(Metrics.step == FINAL, Metrics.name == stored_name(metric))
    found: dict[str, float | None] = {}
    with reading(store.engine) as connection:
        for chunk in chunks(dict.fromkeys(ids)):
            for id, value in connection.execute(query.where(Metrics.trial_id.in_(chunk))):
                found[id] = value
    return found


def results(
    store: Store,
    words: Sequence[str] = (),
    *,
    ids: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    group_by: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """One row a suite, configuration and metric; with `group_by`, one row for each of these keys' values and metric.

    Args:
        store: the database.
        words: a filter (`db.filters`).
        ids: of these trials alone.
        metrics: names, ``accuracy`` meaning the test set's, ``all`` every final value; default: the test set's.
        group_by: columns of a configuration, ``suite``, ``seed``, parameters of regularizers, or overrides.

    Returns:
        suite, task, data, model, regularizer, params, schedule, align, preset, overrides, metric, mean, std (sample
        standard deviation, None for n < 2), n, published, state; with `group_by`, its keys instead of the columns
        before `metric`, and no `published`. What has no result yet has a row with n = 0.

    Raises:
        InputError: a word, metric or key is unknown.
    """
    with reading(store.engine) as connection:
        found = filters.parse(connection, words)
        if ids is not None:
            found.clauses.append(Trials.id.in_(ids))
        values = _values(connection, found.clauses, metrics)
        suites = _suites(connection, found)
        configs = _configs(connection, found.clauses)
        trials = connection.execute(
            select(Trials.id, Trials.config_id, Trials.seed, Trials.state)
            .join(Configs)
            .where(*found.clauses)
            .order_by(Trials.created_at, Trials.id)
        ).all()
    _check_keys(group_by, configs)
    groups: dict[Any, _Group] = {}
    for id, config_id, seed, state in trials:
        for suite in suites.get(id, [None]):
            label: dict[str, Any] = {"suite": suite, **configs[config_id]}
            place: Any = (suite, config_id)
            if group_by:
                label = {key: _value(key, {**label, "seed": seed}) for key in group_by}
                place = canonical_json(label)
            group = groups.setdefault(place, _Group(label, {}, set()))
            group.states.add(state)
            for name, value in values.get(id, {}).items():
                group.values.setdefault(name, []).append(value)
    published = Published()
    ordered = sorted(groups.values(), key=lambda group: [_order(value) for value in group.label.values()])
    asked = [name for name in metrics if name != "all"]
    return [row for group in ordered for row in _rows(group, published, asked, grouped=bool(group_by))]


@dataclass(frozen=True)
class _Group:
    label: dict[str, Any]
    values: dict[str, list[float | None]]
    states: set[str]


def _rows(group: _Group, published: Published, asked: Sequence[str], *, grouped: bool) -> Iterable[dict[str, Any]]:
    state = min(group.states, key=FIRST_TOLD.index)
    names = sorted(group.values, key=lambda name: (not name.startswith("test/"), name))
    named: list[str | None] = [*names] or [*asked]
    for name in named or [None]:
        summary = summarize(group.values.get(name, ()) if name else ())
        metric = name.removeprefix("test/") if name else None
        if not grouped:
            metric = metric or published.metric(group.label["suite"])
        row = {**group.label, "metric": metric, "mean": summary.mean, "std": summary.std, "n": summary.n}
        if not grouped:
            row["published"] = published.value(group.label, metric)
        yield {**row, "state": state}


def _configs(connection: Connection, clauses: Sequence[ColumnElement[bool]]) -> dict[str, dict[str, Any]]:
    columns = [getattr(Configs, name) for name in COLUMNS]
    here = select(Trials.config_id).join(Configs).where(*clauses) if clauses else select(Configs.id)
    rows = connection.execute(select(Configs.id, *columns).where(Configs.id.in_(here)))
    return {id: dict(zip(COLUMNS, values, strict=True)) for id, *values in rows}


def _suites(connection: Connection, found: filters.Filter) -> dict[str, list[str | None]]:
    """The suites of each trial; where the filter names some, those alone."""
    query = select(Memberships.trial_id, Memberships.suite).order_by(Memberships.suite)
    if found.clauses:
        query = query.join(Trials, Trials.id == Memberships.trial_id).join(Configs).where(*found.clauses)
    if found.suites:
        query = query.where(Memberships.suite.in_(found.suites))
    suites: dict[str, list[str | None]] = {}
    for id, suite in connection.execute(query):
        suites.setdefault(id, []).append(suite)
    return suites


def _values(
    connection: Connection, clauses: Sequence[ColumnElement[bool]], metrics: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """The final values by trial and name."""
    query = select(Metrics.trial_id, Metrics.name, Metrics.value).where(Metrics.step == FINAL)
    if clauses:
        query = query.join(Trials, Trials.id == Metrics.trial_id).join(Configs).where(*clauses)
    if not metrics:
        query = query.where(Metrics.name.startswith("test/"))
    elif "all" not in metrics:
        names = [stored_name(metric) for metric in metrics]
        _check_metrics(connection, metrics)
        query = query.where(Metrics.name.in_(names))
    values: dict[str, dict[str, float | None]] = {}
    for id, name, value in connection.execute(query):
        values.setdefault(id, {})[name] = value
    return values


def _check_metrics(connection: Connection, metrics: Sequence[str]) -> None:
    known = set(connection.scalars(select(Metrics.name).where(Metrics.step == FINAL).distinct()))
    for metric in metrics:
        if known and stored_name(metric) not in known:
            raise unknown_name("metric", metric, {name.removeprefix("test/") for name in known} | {"all"})


def _check_keys(keys: Sequence[str], configs: dict[str, dict[str, Any]]) -> None:
    inner = {name for config in configs.values() for holder in ("params", "overrides") for name in config[holder]}
    known = {"suite", "seed", *COLUMNS, *inner} - {"params", "overrides"}
    for key in keys:
        if key in ("params", "overrides"):
            raise InputError(f"--group-by {key}: expected the name of one of its keys: {', '.join(sorted(inner))}")
        if configs and key not in known:
            raise unknown_name("key to group by", key, known)


def _order(value: Any) -> tuple[int, float, str]:
    """Nothing first, then numbers by size, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, value if isinstance(value, str) else canonical_json(value)


def _value(key: str, label: dict[str, Any]) -> Any:
    if key in label:
        return label[key]
    return label["params"].get(key, label["overrides"].get(key))
