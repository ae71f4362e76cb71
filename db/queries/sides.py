"""The two sides of a comparison: the trials of a filter by configuration, without those that only chose candidates."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Text, and_, cast, func, not_, select

from dropbench.db.queries.groups import COLUMNS, GroupKeys, configs
from dropbench.db.queries.marks import (
    OLDER,
    TUNING,
    VERSIONED,
    all_versions,
    is_older,
    mark_text,
    marks_of,
    trial_labels,
)
from dropbench.db.queries.task_metrics import resolve_names
from dropbench.db.schema.tables import FINAL, Configs, Metrics, Trials
from dropbench.db.store import filters
from dropbench.db.store.rows import Row, in_list
from dropbench.harness.suites.search_space import RECIPE_PREFIX, TRIAL_KEYS
from dropbench.harness.trials.metric import MetricName

Key = tuple[str, ...]
"""The path of a leaf in a configuration."""

Id = tuple[Any, ...]
"""A configuration; in databases with different versions of a library or with reference trials, also these."""


@dataclass
class Side:
    """The trials of one filter, by configuration.

    Attributes:
        configs: the columns of `dropbench.db.queries.groups.COLUMNS`, the mark (`dropbench.db.queries.marks`) and
            perhaps the libraries.
        values: by metric, configuration and seed.
        config_json: the complete configurations as JSON.
        chosen: the leaves whose values dev has chosen for a configuration.
        left_out: how many trials match the filter and only chose candidates.
    """

    configs: dict[Id, Row] = field(default_factory=dict)
    values: dict[str, dict[Id, dict[int, float]]] = field(default_factory=dict)
    config_json: dict[Id, str] = field(default_factory=dict)
    chosen: dict[Id, tuple[Key, ...]] = field(default_factory=dict)
    left_out: int = 0


def read_sides(
    sides: Sequence[tuple[Connection, Sequence[str]]],
    metrics: Sequence[str] = (),
    *,
    chosen: Mapping[str, Collection[str]] = {},
    left_out: Collection[str] = (),
) -> list[Side]:
    """Read the trials of filters, each of a database.

    Args:
        sides: a database and the words of a filter for each side.
        metrics: as of `dropbench.db.queries.results.results`.
        chosen: by the id of a configuration, the swept keys whose values dev has chosen.
        left_out: ids of the other candidates of tuned presets. Their trials and the seeds that no table has are read
            only if a word of the filter names trials or seeds.

    Raises:
        InputError: a word or metric is unknown.
    """
    names = trial_labels(*(connection for connection, _ in sides))
    others = select(Configs.c.id).where(Configs.c.result_versions.is_not(None)).limit(1)
    versions = any(connection.scalar(others) is not None for connection, _ in sides)
    read = []
    for connection, words in sides:
        filter, count = filters.parse(connection, words), 0
        if not filter.single:
            own = [~TUNING, ~in_list(connection, Trials.c.config_id, left_out)]
            query = select(func.count()).select_from(Trials).where(*filter.clauses, not_(and_(*own)))
            count = connection.scalar(query) or 0
            filter.clauses += own if count else []
        side = _read_side(connection, GroupKeys(filter, names), metrics, versions=versions)
        side.chosen = {id: tuple(_leaves(chosen[id[0]])) for id in side.configs if id[0] in chosen}
        side.left_out = count
        read.append(side)
    return read


def _leaves(keys: Collection[str]) -> Iterator[Key]:
    """Yield the leaves of a configuration that hold the values of swept keys."""
    for key in keys:
        if key.startswith(RECIPE_PREFIX):
            name = key.removeprefix(RECIPE_PREFIX)
            yield "overrides", name
            yield "recipe", *name.split(".")
        else:
            yield (key,) if key in TRIAL_KEYS else ("regularizer", "params", key)


def _read_side(connection: Connection, keys: GroupKeys, metrics: Sequence[str], *, versions: bool) -> Side:
    filter = keys.filter
    query = select(Configs.c.id, cast(Configs.c.config, Text)).where(*filter.on_configs(Configs.c.id))
    texts: dict[str, str] = dict(connection.execute(query).all())
    names, marks = resolve_names(connection, metrics), marks_of(connection)
    side = Side(values={MetricName.parse(name).label: _seed_values(keys, connection, name) for name in names})
    rows = configs(connection, filter, COLUMNS)
    trained = connection.execute(keys.select().distinct()).all() if keys.names else [(id,) for id in rows]
    for id, *own in trained:
        labels = dict(zip(keys.names, own, strict=True))
        key = id, *own
        row = side.configs[key] = {**dict(zip(COLUMNS, rows[id], strict=True)), **labels}
        older = OLDER if is_older(*(row[name] for name in VERSIONED)) else None
        row["mark"] = mark_text((marks.get((row["data"], row["fingerprint"])), older))
        more: Row = dict(labels)
        if versions:  # also those that are 1: a missing one would equal that of a configuration without the item
            more |= {"result_versions": all_versions(*(row[name] for name in VERSIONED)), "plugins": {}}
        side.config_json[key] = json.dumps({**json.loads(texts[id]), **more}) if more else texts[id]
    return side


def _seed_values(keys: GroupKeys, connection: Connection, name: str) -> dict[Id, dict[int, float]]:
    """Return the finite final values of a metric by key and seed."""
    query = keys.select(Trials.c.seed, Metrics.c.value).join(Metrics, Metrics.c.trial_id == Trials.c.id)
    query = query.where(Metrics.c.step == FINAL, Metrics.c.name == name, Metrics.c.value.is_not(None))
    # The index of final values has the configuration: trials of others are not looked up.
    query = query.where(*keys.filter.on_configs(Metrics.c.config_id))
    values: dict[Id, dict[int, float]] = {}
    for *key, seed, value in connection.execute(query):
        values.setdefault(tuple(key), {})[seed] = value
    return values
