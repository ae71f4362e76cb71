"""Trials in groups, with the states and final values of each: what `db.query` makes rows of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, groupby, islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, cast, func, select

from db.filters import Filter, Parsed, final_names
from db.models import FINAL, Configs, Memberships, Metrics, Trials
from harness.errors import InputError, unknown_name

COLUMNS = ("task", "data", "model", "regularizer", "params", "schedule", "align", "preset", "overrides")
HOLDERS = ("params", "overrides")
OF_TRIALS = ("suite", "seed")
"""What may be grouped by and is no configuration's."""

AT_ONCE = 10_000
"""Rows that are taken from the driver at a time."""


@dataclass(frozen=True)
class Group:
    """Trials that share a label: their final values by name, and the states that they are in."""

    label: dict[str, Any]
    values: dict[str, list[float | None]] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)


class Places:
    """Where a trial belongs, as columns: its configuration, a suite, its seed; those of them that are asked for.

    What is not asked for is not read: suites would double the rows of a trial that two have asked for.
    """

    def __init__(self, found: Filter, group_by: Sequence[str]) -> None:
        self.found = found
        self.by_config = not group_by or any(key not in OF_TRIALS for key in group_by)
        self.by_suite = not group_by or "suite" in group_by
        self.by_seed = "seed" in group_by
        every: list[Any] = [Trials.c.config_id, Memberships.c.suite, Trials.c.seed]
        wanted = (self.by_config, self.by_suite, self.by_seed)
        self.columns = [*compress(every, wanted)]
        before = (0, self.by_config, self.by_config + self.by_suite)
        self._at = [number if here else None for number, here in zip(before, wanted, strict=True)]

    def select(self, *more: Any) -> Select[Any]:
        """A statement on the filter's trials: their place, and more; where the filter names suites, those alone."""
        query = select(*self.columns, *more).select_from(Trials)
        if self.by_suite:
            here = Memberships.c.trial_id == Trials.c.id
            if self.found.suites:
                here &= Memberships.c.suite.in_(self.found.suites)
            query = query.outerjoin(Memberships, here)
        return query.where(*self.found.clauses)

    def finals(self, connection: Connection, name: str) -> Iterator[tuple[Any, list[float | None]]]:
        """The final values of that name, place by place; a place may come more than once."""
        final = Metrics.c.step == FINAL, Metrics.c.name == name
        if self.found.clauses or self.columns != [Trials.c.config_id]:
            query = self.select(Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id).where(*final)
            for place, rows in groupby(_plain(connection, query), lambda row: row[:-1]):
                yield place, [row[-1] for row in rows]
            return
        # All of them: how many each configuration has, and beside that the values in the same order, from one index.
        columns: list[Any] = [Metrics.c.config_id, func.count()]
        counts = select(*columns).where(*final).group_by(Metrics.c.config_id)
        query = select(Metrics.c.value).where(*final).order_by(Metrics.c.config_id, Metrics.c.trial_id)
        values = chain.from_iterable(_plain(connection, query))
        for config_id, count in _plain(connection, counts.order_by(Metrics.c.config_id)):
            yield (config_id,), list(islice(values, count))

    def points(self, connection: Connection, name: str) -> Iterator[tuple[Any, Iterator[tuple[Any, ...]]]]:
        """The points of curves of that name, place by place, perhaps more than once; step and value end a row."""
        query = self.select(Metrics.c.step, Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id)
        query = query.where(Metrics.c.name == name, Metrics.c.step != FINAL)
        yield from groupby(_plain(connection, query), lambda row: row[:-2])

    def parts(self, place: Sequence[Any]) -> tuple[Any, Any, Any]:
        """The configuration, suite and seed of a place; None for what was not asked for."""
        config_id, suite, seed = self._at
        return (
            None if config_id is None else place[config_id],
            None if suite is None else place[suite],
            None if seed is None else place[seed],
        )


class Groups:
    """The groups that a filter's trials fall into; they are made as places are asked for.

    Raises:
        InputError: a key is unknown.
    """

    def __init__(self, connection: Connection, places: Places, group_by: Sequence[str]) -> None:
        self.places, self.group_by = places, group_by
        self.keys = [key for key in group_by if key not in OF_TRIALS] if group_by else COLUMNS
        self.plain = bool(group_by) and all(key in COLUMNS and key not in HOLDERS for key in self.keys)
        self.configs = configs(connection, places.found.clauses, self.keys) if places.by_config else {}
        self.found: dict[Any, Group] = {}

    def at(self, place: Sequence[Any]) -> Group:
        """The group that a place belongs to."""
        config_id, suite, seed = self.places.parts(place)
        values = self.configs.get(config_id, ())
        if self.plain:
            return self._group(values, suite, seed, (values, suite, seed))
        # Equal numbers of different types are different values: 1 is not true.
        return self._group(values, suite, seed, (values, suite, seed, *map(type, values)) if self.group_by else place)

    def note_states(self, connection: Connection) -> None:
        """Make all groups, each with the states of its trials, in the order of their places."""
        columns = self.places.columns
        places = self.places.select(Trials.c.state).distinct().order_by(*columns, Trials.c.state)
        if not (self.plain and self.places.by_config):
            for row in _plain(connection, places):
                self.at(row[:-1]).states.add(row[-1])
            return
        # Of a million trials, a hundred labels: the database joins them, as it reads configurations in their order.
        inner = places.order_by(None).subquery()
        labels = [Configs.c[key] for key in self.keys]
        _, *others = inner.columns
        query = select(*labels, *others).select_from(inner).join(Configs, Configs.c.id == inner.c.config_id)
        for row in _plain(connection, query.distinct().order_by(*labels, *others)):
            values, (*place, state) = row[: len(labels)], row[len(labels) :]
            _, suite, seed = self.places.parts((None, *place))
            self._group(values, suite, seed, (values, suite, seed)).states.add(state)

    def _group(self, values: tuple[Any, ...], suite: Any, seed: Any, same: Any) -> Group:
        group = self.found.get(same)
        if group is None:
            label = {"suite": suite, "seed": seed, **dict(zip(self.keys, values, strict=True))}
            group = self.found[same] = Group({key: label[key] for key in self.group_by or ("suite", *COLUMNS)})
        return group


def grouped(
    connection: Connection, found: Filter, group_by: Sequence[str] = (), metrics: Sequence[str] = ()
) -> list[Group]:
    """The trials of a filter, those of a configuration side by side.

    Args:
        connection: a transaction that reads.
        found: the filter.
        group_by: the keys of the labels, as `db.query.results` has them; none: suite and configuration.
        metrics: stored names, or ``all``; none: those of the test set.

    Raises:
        InputError: a key or metric is unknown.
    """
    places = Places(found, group_by)
    groups = Groups(connection, places, group_by)
    groups.note_states(connection)
    for name in asked_names(connection, metrics):
        for place, values in places.finals(connection, name):
            groups.at(place).values.setdefault(name, []).extend(values)
    return list(groups.found.values())


def seed_values(connection: Connection, found: Filter, name: str) -> dict[str, dict[int, float]]:
    """The final values of that name that are numbers, by configuration and seed."""
    columns: list[Any] = [Trials.c.config_id, Trials.c.seed, Metrics.c.value]
    query = select(*columns).join(Metrics, Metrics.c.trial_id == Trials.c.id)
    query = query.where(Metrics.c.step == FINAL, Metrics.c.name == name, Metrics.c.value.is_not(None), *found.clauses)
    if found.clauses:  # the index of final values knows the configuration: of all others no trial is looked up
        query = query.where(Metrics.c.config_id.in_(select(Trials.c.config_id).where(*found.clauses)))
    values: dict[str, dict[int, float]] = {}
    for config_id, seed, value in _plain(connection, query):
        values.setdefault(config_id, {})[seed] = value
    return values


def configs(
    connection: Connection, clauses: Sequence[ColumnElement[bool]], keys: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    """The values of `keys` by configuration: its columns, or else parameters of its regularizer or overrides.

    Raises:
        InputError: no configuration has such a key.
    """
    plain = all(key in COLUMNS and key not in HOLDERS for key in keys)
    query = select(Configs.c.id, *(_column(key) for key in (keys if plain else COLUMNS)))
    if clauses:
        query = query.where(Configs.c.id.in_(select(Trials.c.config_id).where(*clauses)))
    if plain:
        return {row[0]: row[1:] for row in _plain(connection, query)}
    parsed = Parsed()
    holders = [COLUMNS.index(key) for key in HOLDERS]
    found = {}
    for id, *values in _plain(connection, query):
        for place in holders:
            values[place] = parsed[values[place]]
        found[id] = tuple(values)
    if keys is COLUMNS:
        return found
    rows = {id: dict(zip(COLUMNS, values, strict=True)) for id, values in found.items()}
    _check_keys(keys, rows.values())
    return {id: tuple(_value(key, row) for key in keys) for id, row in rows.items()}


def _column(key: str) -> Any:
    return cast(Configs.c[key], Text) if key in HOLDERS else Configs.c[key]


def _check_keys(keys: Sequence[str], configs: Collection[dict[str, Any]]) -> None:
    inner = {name for config in configs for holder in HOLDERS for name in config[holder]}
    known = {*OF_TRIALS, *COLUMNS, *inner} - {*HOLDERS}
    for key in keys:
        if key in HOLDERS:
            raise InputError(f"--group-by {key}: expected the name of one of its keys: {', '.join(sorted(inner))}")
        if configs and key not in known:
            raise unknown_name("key to group by", key, known)


def _value(key: str, config: dict[str, Any]) -> Any:
    if key in COLUMNS:
        return config[key]
    return config["params"].get(key, config["overrides"].get(key))


def asked_names(connection: Connection, metrics: Sequence[str]) -> list[str]:
    """The stored names of final values that are meant: ``all`` are, and by default those of the test set.

    Raises:
        InputError: there is no such metric.
    """
    known = final_names(connection)
    if not metrics:
        return [name for name in known if name.startswith("test/")]
    if "all" in metrics:
        return known
    for name in metrics:
        if known and name not in known:
            told = {name.removeprefix("test/") for name in known} | {"all"}
            raise unknown_name("metric", name.removeprefix("test/"), told)
    return list(dict.fromkeys(metrics))


def _plain(connection: Connection, query: Select[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of `_batches`."""
    return chain.from_iterable(_batches(connection, query))


def _batches(connection: Connection, query: Select[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Rows as the driver has them: of a million, SQLAlchemy's take twice as long. No column may be JSON."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    while rows := cursor.fetchmany(AT_ONCE):
        yield rows
