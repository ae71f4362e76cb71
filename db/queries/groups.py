"""Groups of trials with their states and final values, from which `db.queries.results` makes rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, compress, groupby, islice
from typing import Any

from sqlalchemy import Connection, Select, Text, cast, func, select

from db.queries.marks import marks_of
from db.schema.tables import FINAL, Configs, Memberships, Metrics, Trials
from db.store.filters import Filter, final_names
from harness.errors import InputError, unknown_name
from harness.trials.metric import TEST, MetricName

COLUMNS = ("task", "data", "fingerprint", "model", "regularizer", "params", "schedule", "align", "preset", "overrides")
HOLDERS = ("params", "overrides")
TRIAL_KEYS = ("suite", "seed")
"""Keys to group by that do not belong to the configuration."""

FETCH_SIZE = 10_000
"""Rows that are fetched from the driver at a time."""


@dataclass(frozen=True)
class Pool:
    """Values, and how many finite ones each configuration has."""

    values: list[float | None] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, config_id: str, values: Sequence[float | None]) -> None:
        """Add values of a configuration."""
        self.values.extend(values)
        self.counts[config_id] = self.counts.get(config_id, 0) + len(values) - values.count(None)

    def __str__(self) -> str:
        """Return, for example, ``3 configurations × 1–2 seeds``; "" for a single configuration."""
        counts = sorted(filter(None, self.counts.values()))
        seeds = "–".join(str(n) for n in dict.fromkeys((*counts[:1], *counts[-1:])))
        return f"{len(counts)} configurations × {seeds} seed{'s' * (seeds != '1')}" if len(counts) > 1 else ""


@dataclass(frozen=True)
class Group:
    """Trials that share a label: final values by name, states, and marks of the data."""

    label: dict[str, Any]
    values: defaultdict[str, Pool] = field(default_factory=partial(defaultdict, Pool))
    states: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)


class GroupKeys:
    """The columns that decide to which group a trial belongs: its configuration, and suite and seed if needed.

    Columns that are not needed are not read: suites would duplicate the rows of a trial that belongs to two of them.
    """

    def __init__(self, filter: Filter, group_by: Sequence[str]) -> None:
        self.filter = filter
        self.by_suite = not group_by or "suite" in group_by
        self.by_seed = "seed" in group_by
        columns: list[Any] = [Trials.c.config_id, Memberships.c.suite, Trials.c.seed]
        self.columns = [*compress(columns, (True, self.by_suite, self.by_seed))]

    def select(self, *more: Any) -> Select[Any]:
        """Return a query for the keys of the matching trials, and more columns; only of the suites that were named."""
        query = select(*self.columns, *more).select_from(Trials)
        if self.by_suite:
            condition = Memberships.c.trial_id == Trials.c.id
            if self.filter.suites:
                condition &= Memberships.c.suite.in_(self.filter.suites)
            query = query.outerjoin(Memberships, condition)
        return query.where(*self.filter.clauses)

    def finals(self, connection: Connection, name: str) -> Iterator[tuple[Any, list[float | None]]]:
        """Yield the final values of a metric by key; a key may occur more than once."""
        final = Metrics.c.step == FINAL, Metrics.c.name == name
        if self.filter.clauses or self.columns != [Trials.c.config_id]:
            query = self.select(Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id).where(*final)
            for key, rows in groupby(_raw_rows(connection, query), lambda row: row[:-1]):
                yield key, [row[-1] for row in rows]
            return
        # All trials: the number of values of each configuration, and the values in the same order, from one index.
        columns: list[Any] = [Metrics.c.config_id, func.count()]
        counts = select(*columns).where(*final).group_by(Metrics.c.config_id)
        query = select(Metrics.c.value).where(*final).order_by(Metrics.c.config_id, Metrics.c.trial_id)
        values = chain.from_iterable(_raw_rows(connection, query))
        for config_id, count in _raw_rows(connection, counts.order_by(Metrics.c.config_id)):
            yield (config_id,), list(islice(values, count))

    def points(self, connection: Connection, name: str) -> Iterator[tuple[Any, Iterator[tuple[Any, ...]]]]:
        """Yield the points of curves by key, which may occur more than once; rows end with step and value."""
        query = self.select(Metrics.c.step, Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id)
        query = query.where(Metrics.c.name == name, Metrics.c.step != FINAL)
        yield from groupby(_raw_rows(connection, query), lambda row: row[:-2])

    def parts(self, key: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Return the configuration, suite and seed of a key, None for those that are not part of it."""
        return key[0], key[1] if self.by_suite else None, key[-1] if self.by_seed else None


class Groups:
    """The groups of a filter's trials, created on look-up. Raises InputError for an unknown key to group by."""

    def __init__(self, connection: Connection, filter: Filter, group_by: Sequence[str]) -> None:
        self.group_by = group_by = separate_data(connection, filter, group_by)
        self.keys, self.marks = GroupKeys(filter, group_by), marks_of(connection)
        self.config_keys = [key for key in group_by if key not in TRIAL_KEYS] if group_by else COLUMNS
        self.plain = bool(group_by) and all(key in COLUMNS and key not in HOLDERS for key in self.config_keys)
        self.configs = configs(connection, filter, self.config_keys)
        self.by_key: dict[Any, Group] = {}

    def at(self, key: Sequence[Any]) -> Group:
        """Return the group of a key."""
        config_id, suite, seed = self.keys.parts(key)
        values = self.configs.get(config_id, ())
        if self.plain:
            key = values, suite, seed
        elif self.group_by:  # equal numbers of different types are different values: 1 is not true
            key = values, suite, seed, *map(type, values)
        group = self.by_key.get(key) or self._group(values, suite, seed, key)
        if config_id in self.marks:
            group.marks.update(self.marks[config_id])
        return group

    def add_states(self, connection: Connection) -> None:
        """Create all groups with the states of their trials, in the order of their keys."""
        columns = self.keys.columns
        query = self.keys.select(Trials.c.state).distinct().order_by(*columns, Trials.c.state)
        if not self.plain:
            for row in _raw_rows(connection, query):
                self.at(row[:-1]).states.add(row[-1])
            return
        # A million trials may have a hundred labels. The database joins them: it reads configurations in order.
        inner = query.order_by(None).subquery()
        labels = [Configs.c[key] for key in self.config_keys]
        _, *others = inner.columns
        joined = select(*labels, *others).select_from(inner).join(Configs, Configs.c.id == inner.c.config_id)
        for row in _raw_rows(connection, joined.distinct().order_by(*labels, *others)):
            values, (*key, state) = row[: len(labels)], row[len(labels) :]
            _, suite, seed = self.keys.parts((None, *key))
            self._group(values, suite, seed, (values, suite, seed)).states.add(state)

    def _group(self, values: tuple[Any, ...], suite: Any, seed: Any, key: Any) -> Group:
        group = self.by_key.get(key)
        if group is None:
            label = {"suite": suite, "seed": seed, **dict(zip(self.config_keys, values, strict=True))}
            group = self.by_key[key] = Group({name: label[name] for name in self.group_by or ("suite", *COLUMNS)})
        return group


def grouped(
    connection: Connection, filter: Filter, group_by: Sequence[str] = (), metrics: Sequence[str] = ()
) -> list[Group]:
    """Return the groups of a filter's trials, those of a configuration next to each other.

    Args:
        connection: a read transaction.
        filter: the filter.
        group_by: the keys of the labels, as of `db.queries.results.results`; none: suite and configuration.
        metrics: names, or ``all``; none: those of the test set.

    Raises:
        InputError: a key or metric is unknown.
    """
    groups = Groups(connection, filter, group_by)
    groups.add_states(connection)
    for name in resolve_names(connection, metrics):
        for key, values in groups.keys.finals(connection, name):
            groups.at(key).values[name].add(key[0], values)
    return list(groups.by_key.values())


def separate_data(connection: Connection, filter: Filter, group_by: Sequence[str]) -> Sequence[str]:
    """Return `group_by`, with data and fingerprint added if a data set of the trials has several fingerprints."""
    query = select(Configs.c.data, Configs.c.fingerprint).distinct().where(*filter.on_configs(Configs.c.id))
    names = [row.data for row in connection.execute(query)] if group_by else []
    if len(names) > len(set(names)):
        return [*dict.fromkeys([*group_by, "data", "fingerprint"])]
    return group_by


def seed_values(connection: Connection, filter: Filter, name: str) -> dict[str, dict[int, float]]:
    """Return the finite final values of a metric by configuration and seed."""
    columns: list[Any] = [Trials.c.config_id, Trials.c.seed, Metrics.c.value]
    query = select(*columns).join(Metrics, Metrics.c.trial_id == Trials.c.id)
    query = query.where(Metrics.c.step == FINAL, Metrics.c.name == name, Metrics.c.value.is_not(None), *filter.clauses)
    # The index of final values has the configuration: trials of others are not looked up.
    query = query.where(*filter.on_configs(Metrics.c.config_id))
    values: dict[str, dict[int, float]] = {}
    for config_id, seed, value in _raw_rows(connection, query):
        values.setdefault(config_id, {})[seed] = value
    return values


def configs(connection: Connection, filter: Filter, keys: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of `keys` by configuration: columns, parameters of the regularizer, or overrides.

    Raises:
        InputError: no configuration has such a key.
    """
    plain = all(key in COLUMNS and key not in HOLDERS for key in keys)
    columns = [Configs.c[key] for key in (keys if plain else COLUMNS)]
    query = select(Configs.c.id, *(cast(column, Text) if column.name in HOLDERS else column for column in columns))
    query = query.where(*filter.on_configs(Configs.c.id))
    if plain:
        return {row[0]: row[1:] for row in _raw_rows(connection, query)}
    parsed = cache(json.loads)  # many configurations share the same parameters
    positions = [COLUMNS.index(key) for key in HOLDERS]
    complete = {}
    for id, *values in _raw_rows(connection, query):
        for position in positions:
            values[position] = parsed(values[position])
        complete[id] = tuple(values)
    if keys is COLUMNS:
        return complete
    rows = {id: dict(zip(COLUMNS, values, strict=True)) for id, values in complete.items()}
    parameters = {name for row in rows.values() for holder in HOLDERS for name in row[holder]}
    known = {*TRIAL_KEYS, *COLUMNS, *parameters} - {*HOLDERS}
    for key in keys:
        if key in HOLDERS:
            raise InputError(f"--group-by {key}: expected the name of one of its keys: {', '.join(sorted(parameters))}")
        if rows and key not in known:
            raise unknown_name("key to group by", key, known)
    merged = ((id, {**row["overrides"], **row["params"], **row}) for id, row in rows.items())
    return {id: tuple(row.get(key) for key in keys) for id, row in merged}


def resolve_names(connection: Connection, metrics: Sequence[str]) -> list[str]:
    """Return the stored names of final values for the user's `metrics`; ``all``: every one; none: the test set's.

    Raises:
        InputError: there is no such metric.
    """
    known = final_names(connection)
    if not metrics:
        return [name for name in known if MetricName.parse(name).split == TEST]
    if "all" in metrics:
        return known
    names = [MetricName.parse(metric) for metric in metrics]
    for name in names:
        if known and str(name) not in known:
            raise unknown_name("metric", name.label, {MetricName.parse(name).label for name in known} | {"all"})
    return list(dict.fromkeys(map(str, names)))


def _raw_rows(connection: Connection, query: Select[Any]) -> Iterator[tuple[Any, ...]]:
    """Return rows as the driver returns them; SQLAlchemy's take twice as long. No column may be JSON."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    return chain.from_iterable(iter(lambda: cursor.fetchmany(FETCH_SIZE), []))
