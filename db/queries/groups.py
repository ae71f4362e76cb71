"""Groups of trials with their states and final values, from which `dropbench.db.queries.results` makes rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, groupby, islice
from typing import Any

from sqlalchemy import Connection, Select, Text, case, cast, func, select

from dropbench.db.queries.marks import (
    TUNING,
    Machine,
    data_sets,
    differing_fields,
    differing_items,
    machines,
    mark_columns,
    marks_of,
    only_items,
    trial_labels,
)
from dropbench.db.queries.task_metrics import resolve_names
from dropbench.db.schema.reference import ORIGIN
from dropbench.db.schema.tables import FINAL, Configs, Metrics, Trials
from dropbench.db.store.filters import Filter
from dropbench.db.store.requests import MEMBERS
from dropbench.db.store.rows import in_list
from dropbench.harness.errors import InputError, unknown_name

COLUMNS = ("task", "data", "fingerprint", "model", "regularizer", "params", "schedule", "align", "preset", "overrides",
           "result_versions")  # fmt: skip
DATA_SET = ("data", "fingerprint")
HOLDERS = ("params", "overrides")
TRIAL_KEYS: dict[str, Any] = {
    "suite": MEMBERS.c.suite, "seed": Trials.c.seed, "libraries": Trials.c.libraries, "origin": ORIGIN,
    "seeds": case((TUNING, "tuning"), else_=None),
}  # fmt: skip
"""Keys to group by that do not belong to the configuration."""


FETCH_SIZE = 10_000
"""Rows that are fetched from the driver at a time."""


@dataclass(frozen=True)
class Pool:
    """Values, and how many finite ones each configuration has."""

    values: list[float | None] = field(default_factory=list)
    counts: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))

    def add(self, config_id: str, values: Iterable[float | None], finite: int) -> None:
        """Add values of a configuration, of which `finite` are not None."""
        self.values.extend(values)
        self.counts[config_id] += finite

    def __str__(self) -> str:
        """Return, for example, ``3 configurations × 1–2 seeds``; "" for a single configuration."""
        counts = sorted(filter(None, self.counts.values()))
        seeds = "–".join(str(n) for n in dict.fromkeys((*counts[:1], *counts[-1:])))
        return f"{len(counts)} configurations × {seeds} seed{'s' * (seeds != '1')}" if len(counts) > 1 else ""


@dataclass(frozen=True)
class Group:
    """Trials that share a label: final values by name, states, and marks: of the data, or why a trial is skipped.

    `config_id` is their configuration, None if they are grouped by other keys; `machines` trained them.
    """

    label: dict[str, Any]
    config_id: str | None
    values: defaultdict[str, Pool] = field(default_factory=partial(defaultdict, Pool))
    states: set[str] = field(default_factory=set)
    marks: set[str | None] = field(default_factory=set)
    machines: set[Machine] = field(default_factory=set)


class GroupKeys:
    """The columns that decide to which group a trial belongs: its configuration, and those of `TRIAL_KEYS` in `keys`.

    Columns that are not needed are not read: suites would duplicate the rows of a trial that belongs to two of them.
    """

    def __init__(self, filter: Filter, keys: Iterable[str]) -> None:
        self.filter = filter
        self.names = [name for name in TRIAL_KEYS if name in keys]
        self.columns: list[Any] = [Trials.c.config_id, *(TRIAL_KEYS[name] for name in self.names)]

    def select(self, *more: Any) -> Select[Any]:
        """Return a query for the keys of the matching trials, and more columns; only of the suites that were named."""
        query = select(*self.columns, *more).select_from(Trials)
        if "suite" in self.names:
            condition = MEMBERS.c.trial == Trials.c.id
            if self.filter.suites:
                condition &= MEMBERS.c.suite.in_(self.filter.suites)
            query = query.outerjoin(MEMBERS, condition)
        return query.where(*self.filter.clauses)

    def finals(self, connection: Connection, name: str) -> Iterator[tuple[Any, Iterable[float | None], int]]:
        """Yield the final values of a metric by key, to be read in turn, and the number of finite ones.

        A key may occur more than once.
        """
        final = Metrics.c.step == FINAL, Metrics.c.name == name
        if self.filter.clauses or self.columns != [Trials.c.config_id]:
            query = self.select(Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id).where(*final)
            for key, rows in groupby(_raw_rows(connection, query), lambda row: row[:-1]):
                values = [row[-1] for row in rows]
                yield key, values, len(values) - values.count(None)
            return
        # All trials: the number of values of each configuration, and the values in the same order, from one index.
        columns: list[Any] = [Metrics.c.config_id, func.count(), func.count(Metrics.c.value)]
        counts = select(*columns).where(*final).group_by(Metrics.c.config_id)
        query = select(Metrics.c.value).where(*final).order_by(Metrics.c.config_id, Metrics.c.trial_id)
        all_values = chain.from_iterable(_raw_rows(connection, query))
        for config_id, count, finite in _raw_rows(connection, counts.order_by(Metrics.c.config_id)):
            yield (config_id,), islice(all_values, count), finite

    def points(self, connection: Connection, name: str) -> Iterator[tuple[Any, Iterator[tuple[Any, ...]]]]:
        """Yield the points of curves by key, which may occur more than once; rows end with step and value."""
        query = self.select(Metrics.c.step, Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id)
        query = query.where(Metrics.c.name == name, Metrics.c.step != FINAL)
        yield from groupby(_raw_rows(connection, query), lambda row: row[:-2])


class Groups:
    """The groups of a filter's trials, created on look-up. Raises InputError for an unknown key to group by.

    Trials on different data are never in one group, nor, in a database with different versions of a library, are those
    trained with different versions, nor those of different result versions of an item, such as of a plug-in: the label
    has the data set's fingerprint, the `libraries` or the `result_versions` then. Reference trials are never in a group
    with the user's, nor trials of a table with those that only compare candidates: the label has the `origin`, or the
    `seeds`, if there are any.
    """

    def __init__(self, connection: Connection, filter: Filter, group_by: Sequence[str]) -> None:
        self.group_by, self.marks = group_by, marks_of(connection)
        labels = [*(group_by or ("suite", *COLUMNS))]
        if _several(self.marks) and _several(data_sets(connection, *filter.on_configs(Configs.c.id))):
            labels += DATA_SET
        labels += trial_labels(connection)
        if differing := differing_items(connection, *filter.on_configs(Configs.c.id)):
            labels.append("result_versions")
        self.labels = tuple(dict.fromkeys(labels))
        self.keys = GroupKeys(filter, self.labels)
        self.config_keys = [key for key in self.labels if key not in TRIAL_KEYS] if group_by else COLUMNS
        self.plain = bool(group_by) and all(key in COLUMNS and key not in HOLDERS for key in self.config_keys)
        self.configs = configs(connection, filter, self.config_keys)
        if group_by and differing and "result_versions" not in group_by:  # one version of an item separates nothing
            self.plain, at = False, self.config_keys.index("result_versions")
            for id, values in self.configs.items():
                self.configs[id] = (*values[:at], only_items(values[at], differing), *values[at + 1 :])
        self.by_key: dict[Any, Group] = {}
        self._add_states(connection)

    def at(self, key: tuple[Any, ...]) -> Group:
        """Return the group of a key."""
        values = self.configs.get(key[0], ())
        if self.plain:
            key = values, *key[1:]
        elif self.group_by:  # equal numbers of different types are different values: 1 is not true
            key = values, *key[1:], *map(type, values)
        return self.by_key.get(key) or self._group(values, key)

    def _add_states(self, connection: Connection) -> None:
        """Create all groups with the states and marks of their trials, in the order of their keys."""
        query, marks = self.keys.select(Trials.c.state).distinct(), mark_columns(connection, self.marks)
        if not self.plain:
            own = select(Configs.c.id, *marks).where(func.coalesce(*marks).is_not(None))
            marked = {id: texts for id, *texts in _raw_rows(connection, own)}
            for *key, state in _raw_rows(connection, query.order_by(*self.keys.columns, Trials.c.state)):
                group = self.at(tuple(key))
                group.states.add(state)
                group.marks.update(marked.get(key[0], ()))
            if any("skipped" in group.states for group in self.by_key.values()):
                skipped = self.keys.select(Trials.c.reason).where(Trials.c.state == "skipped").distinct()
                for *key, reason in _raw_rows(connection, skipped):
                    self.at(tuple(key)).marks.add(reason)
            return
        # A million trials may have a hundred labels. The database joins them: it reads configurations in order.
        inner = query.subquery()
        labels = [Configs.c[key] for key in self.config_keys]
        _, *others = inner.columns
        joined = select(*labels, *others, *marks).select_from(inner).join(Configs, Configs.c.id == inner.c.config_id)
        for row in _raw_rows(connection, joined.distinct().order_by(*labels, *others)):
            values, (*key, state, data_mark, rule_mark) = row[: len(labels)], row[len(labels) :]
            group = self._group(values, (values, *key))
            group.states.add(state)
            group.marks.update((data_mark, rule_mark))

    def _group(self, values: tuple[Any, ...], key: tuple[Any, ...]) -> Group:
        group = self.by_key.get(key)
        if group is None:
            label = dict(zip((*self.config_keys, *self.keys.names), (*values, *key[1:]), strict=False))
            config_id = None if self.group_by else key[0]
            group = self.by_key[key] = Group({name: label[name] for name in self.labels}, config_id)
        return group

    def mark_alike(self, connection: Connection) -> None:
        """Mark groups of equal labels by the fields in which their configurations differ, such as plug-in files."""
        alike: defaultdict[str, list[tuple[str, Group]]] = defaultdict(list)
        for (config_id, *_), group in self.by_key.items():
            alike[repr(group.label)].append((config_id, group))
        twins = [pairs for pairs in alike.values() if len(pairs) > 1]
        ids = in_list(connection, Configs.c.id, [id for pairs in twins for id, _ in pairs])
        rows = connection.execute(select(Configs.c.id, Configs.c.config).where(ids)) if twins else ()
        configs = {id: config for id, config in rows}  # noqa: C416 - dict() would take the result for a mapping
        for pairs in twins:
            fields = differing_fields([configs[id] for id, _ in pairs])
            for (_, group), texts in zip(pairs, fields, strict=True):
                group.marks.update(texts)


def grouped(
    connection: Connection, filter: Filter, group_by: Sequence[str] = (), metrics: Sequence[str] = ()
) -> list[Group]:
    """Return the groups of a filter's trials, those of a configuration next to each other.

    Args:
        connection: a read transaction.
        filter: the filter.
        group_by: the keys of the labels, as of `dropbench.db.queries.results.results`; none: suite and configuration.
        metrics: names, or ``all``; none: those of the test set.

    Raises:
        InputError: a key or metric is unknown.
    """
    groups = Groups(connection, filter, group_by)
    for name in resolve_names(connection, metrics):
        for key, values, finite in groups.keys.finals(connection, name):
            groups.at(key).values[name].add(key[0], values, finite)
    for key, machine in machines(connection, groups.keys.select):
        groups.at(key).machines.add(machine)
    if not group_by:
        groups.mark_alike(connection)
    for group in groups.by_key.values():
        group.marks.add(f"{len(group.machines)} machines" if len(group.machines) > 1 else None)
    return list(groups.by_key.values())


def _several(sets: Collection[tuple[str, ...]]) -> bool:
    return len(sets) > len({data for data, _ in sets})


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


def _raw_rows(connection: Connection, query: Select[Any]) -> Iterator[tuple[Any, ...]]:
    """Return rows as the driver returns them; SQLAlchemy's take twice as long. No column may be JSON."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    return chain.from_iterable(iter(lambda: cursor.fetchmany(FETCH_SIZE), []))
