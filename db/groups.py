"""Trials in groups, with the states and final values of each: what `db.query` makes rows of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, null, select

from db.filters import Filter
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
    """Where a trial belongs, as columns: its configuration, a suite, its seed; NULL for what is not asked for.

    What is not asked for is not read either: suites would double the rows of a trial that two have asked for.
    """

    def __init__(self, found: Filter, group_by: Sequence[str]) -> None:
        by_config = not group_by or any(key not in OF_TRIALS for key in group_by)
        self.found, self.by_suite = found, not group_by or "suite" in group_by
        every: list[Any] = [Trials.config_id, Memberships.suite, Trials.seed]
        wanted = [by_config, self.by_suite, "seed" in group_by]
        self.columns = [column if here else null() for column, here in zip(every, wanted, strict=True)]
        self.asked = [*compress(every, wanted)]
        self.of: Callable[[tuple[Any, ...]], Any] = itemgetter(*compress(range(len(every)), wanted))
        """The place in a row that begins with the columns; hashable, and cheap for a million rows."""

    def select(self, *more: Any) -> Select[Any]:
        """A statement on the filter's trials: their place, and more; where the filter names suites, those alone."""
        query = select(*self.columns, *more).select_from(Trials)
        if self.by_suite:
            here = Memberships.trial_id == Trials.id
            if self.found.suites:
                here &= Memberships.suite.in_(self.found.suites)
            query = query.outerjoin(Memberships, here)
        return query.where(*self.found.clauses)


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
    at = _states(connection, places, group_by)
    for name in _asked_names(connection, metrics):
        finals = places.select(Metrics.value).join(Metrics, Metrics.trial_id == Trials.id)
        values: defaultdict[Any, list[float | None]] = defaultdict(list)
        for row in _plain(connection, finals.where(Metrics.step == FINAL, Metrics.name == name)):
            values[places.of(row)].append(row[-1])
        for place, some in values.items():
            at[place].values.setdefault(name, []).extend(some)
    return list({id(group): group for group in at.values()}.values())


def _states(connection: Connection, places: Places, group_by: Sequence[str]) -> dict[Any, Group]:
    """The groups by the places that belong to them, without values."""
    keys = [key for key in group_by if key not in OF_TRIALS] if group_by else COLUMNS
    configs = _configs(connection, places.found.clauses, keys)
    found: dict[Any, Group] = {}
    at: dict[Any, Group] = {}
    states = places.select(Trials.state).group_by(*places.asked, Trials.state).order_by(*places.asked, Trials.state)
    for row in _plain(connection, states):
        place = places.of(row)
        if place not in at:
            config_id, suite, seed, _ = row
            values = configs.get(config_id, ())
            # Equal numbers of different types are different values: 1 is not true.
            same = (suite, seed, values, *map(type, values)) if group_by else place
            if same not in found:
                label = {"suite": suite, "seed": seed, **dict(zip(keys, values, strict=True))}
                found[same] = Group({key: label[key] for key in group_by or ("suite", *COLUMNS)})
            at[place] = found[same]
        at[place].states.add(row[-1])
    return at


def _configs(
    connection: Connection, clauses: Sequence[ColumnElement[bool]], keys: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    """The values of `keys` by configuration: its columns, or else parameters of its regularizer or overrides.

    Raises:
        InputError: no configuration has such a key.
    """
    plain = all(key in COLUMNS and key not in HOLDERS for key in keys)
    query = select(Configs.id, *(getattr(Configs, key) for key in (keys if plain else COLUMNS)))
    if clauses:
        query = query.where(Configs.id.in_(select(Trials.config_id).where(*clauses)))
    if plain:
        return {row[0]: row[1:] for row in _plain(connection, query)}
    rows = {id: dict(zip(COLUMNS, values, strict=True)) for id, *values in connection.execute(query)}
    if keys is COLUMNS:
        return {id: tuple(row.values()) for id, row in rows.items()}
    _check_keys(keys, rows.values())
    return {id: tuple(_value(key, row) for key in keys) for id, row in rows.items()}


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


def _asked_names(connection: Connection, metrics: Sequence[str]) -> list[str]:
    known = _known_names(connection)
    if not metrics:
        return [name for name in known if name.startswith("test/")]
    if "all" in metrics:
        return known
    for name in metrics:
        if known and name not in known:
            told = {name.removeprefix("test/") for name in known} | {"all"}
            raise unknown_name("metric", name.removeprefix("test/"), told)
    return list(dict.fromkeys(metrics))


def _known_names(connection: Connection) -> list[str]:
    """The names of all final values: a leap in the index for each, where DISTINCT would read the whole of it."""
    least = select(func.min(Metrics.name).label("name")).where(Metrics.step == FINAL)
    names = least.cte("names", recursive=True)
    above = least.where(Metrics.name > names.c.name).scalar_subquery()
    names = names.union_all(select(above).where(names.c.name.is_not(None)))
    return list(connection.scalars(select(names.c.name).where(names.c.name.is_not(None))))


def _plain(connection: Connection, query: Select[Any]) -> Iterator[tuple[Any, ...]]:
    """Rows as the driver has them: of a million, SQLAlchemy's take twice as long. No column may be JSON."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    while rows := cursor.fetchmany(AT_ONCE):
        yield from rows
