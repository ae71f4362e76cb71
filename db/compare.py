"""Two sets of trials side by side: what changed, configuration by configuration, and how sure that is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from sqlalchemy import Connection, Text, cast, select

from db import filters
from db.aggregates import summarize
from db.direction import higher_is_better
from db.filters import stored_name
from db.groups import COLUMNS, asked_names, configs, seed_values
from db.models import Configs, Trials
from db.shape import in_order
from db.statistics import paired

Row = dict[str, Any]
Key = tuple[str, ...]
"""Where a leaf of a configuration is."""

Part = tuple[str, str]
"""A field of a configuration, and its value as text."""

Values = dict[str, dict[int, float]]

_SHOWN = {("task",), ("data", "name"), ("model",), ("schedule",), ("align",), ("preset",), ("regularizer", "name")}
_HOLDERS = {("regularizer", "params"): "params", ("overrides",): "overrides"}


@dataclass(frozen=True)
class Side:
    """Trials of one filter, by their configurations.

    Attributes:
        configs: the columns of `db.groups.COLUMNS` by configuration.
        values: by metric, configuration and seed.
        whole: the configurations as JSON, from which all of what differs is told.
    """

    configs: dict[str, Row]
    values: dict[str, Values] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)


def side(connection: Connection, words: Sequence[str], metrics: Sequence[str] = ()) -> Side:
    """Read the trials of a filter.

    Raises:
        InputError: a word or metric is unknown.
    """
    found = filters.parse(connection, words)
    rows = configs(connection, found.clauses, COLUMNS)
    query = select(Configs.c.id, cast(Configs.c.config, Text))
    if found.clauses:
        query = query.where(Configs.c.id.in_(select(Trials.c.config_id).where(*found.clauses)))
    return Side(
        {id: dict(zip(COLUMNS, values, strict=True)) for id, values in rows.items()},
        {
            name.removeprefix("test/"): seed_values(connection, found, name)
            for name in asked_names(connection, [name if name == "all" else stored_name(name) for name in metrics])
        },
        {row[0]: row[1] for row in connection.execute(query)},
    )


def compare(old: Side, new: Side) -> list[Row]:
    """What both have, matched on everything but what all of one side have otherwise than all of the other.

    Returns:
        a row for each pair of configurations and metric, and for each configuration that only one side has:

        - task, data, model, regularizer, params, schedule, align, preset, overrides: what both agree in, else None;
        - old, new: what they do not agree in, by name;
        - metric, old_mean, old_std, old_n, new_mean, new_std, new_n: over seeds;
        - change: the mean of the differences of seeds that both have (`pairs` of them), else that of the means;
        - low, high: its 95 % confidence interval, None for fewer than 3 pairs;
        - better: whether the change is one for the better by the metric's direction; None: no change or no direction;
        - only: ``old`` or ``new`` where the other side has no such configuration.
    """
    differing, pairs = _matched(old, new)
    names = list(dict.fromkeys([*old.values, *new.values]))
    rows = []
    for first, second in pairs:
        label = _label(old, first, new, second, differing)
        measured: list[str | None] = [
            name
            for name in names
            if first in old.values.get(name, {}) or second in new.values.get(name, {})
        ]  # fmt: skip
        for name in measured or [None]:
            rows.append(_row(label, name, _seeds(old, name, first), _seeds(new, name, second)))
    order = [*COLUMNS, "old", "new", "only", "metric"]
    return sorted(rows, key=lambda row: (row["only"] is not None, [in_order(row[name]) for name in order]))


def _matched(old: Side, new: Side) -> tuple[set[Key], list[tuple[str | None, str | None]]]:
    """The keys that the sides differ in, and the configurations that are alike in all others."""
    if not old.configs.keys().isdisjoint(new.configs):
        # One configuration of both has a value of every key that both have: they differ in none.
        every = dict.fromkeys([*old.configs, *new.configs])
        return set(), [(id if id in old.configs else None, id if id in new.configs else None) for id in every]
    flats: dict[Part, dict[Key, str]] = {}
    olds, news = _parts(old, flats), _parts(new, flats)
    differing = _differing(olds, news, flats) if olds and news else set()
    rest = {
        part: frozenset(leaf for leaf in flat.items() if leaf[0] not in differing) for part, flat in flats.items()
    }  # fmt: skip
    places: dict[Any, tuple[list[str | None], list[str | None]]] = {}
    for number, side in enumerate((olds, news)):
        for id, parts in side.items():
            place = tuple(rest[part] for part in parts if rest[part])
            places.setdefault(place, ([], []))[number].append(id)
    return differing, [
        pair for first, second in places.values() for pair in product(first or [None], second or [None])
    ]  # fmt: skip


def _parts(one: Side, flats: dict[Part, dict[Key, str]]) -> dict[str, list[Part]]:
    """Configurations field by field; the leaves of each go to `flats`, once: many share their recipe and data."""
    found: dict[str, list[Part]] = {}
    for id, text in one.whole.items():
        found[id] = parts = []
        for name, value in sorted(json.loads(text).items()):
            part = name, repr(value)
            if part not in flats:
                flats[part] = dict(_flat({name: value}))
            parts.append(part)
    return found


def _differing(
    olds: Mapping[str, Sequence[Part]], news: Mapping[str, Sequence[Part]], flats: Mapping[Part, Mapping[Key, str]]
) -> set[Key]:
    """The leaves of which no value is on both sides; to have none is a value too."""
    sides = [{part for parts in side.values() for part in parts} for side in (olds, news)]
    found = set()
    for field_name in {name for side in sides for name, _ in side}:
        old, new = ([flats[part] for part in side if part[0] == field_name] or [{}] for side in sides)
        for key in {key for flat in (*old, *new) for key in flat}:
            if {flat.get(key) for flat in old}.isdisjoint(flat.get(key) for flat in new):
                found.add(key)
    return found


def _flat(config: Mapping[str, Any], before: Key = ()) -> Iterator[tuple[Key, str]]:
    """The leaves of a configuration, each as text that tells 1 from 1.0 and true, as a trial's id does."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, (*before, name))
        else:
            yield (*before, name), repr(value)


def _label(old: Side, first: str | None, new: Side, second: str | None, differing: set[Key]) -> Row:
    """What a pair agrees in, column by column, what it does not, and which side alone has it."""
    either = old.configs[first] if first is not None else new.configs[second or ""]
    if first is None or second is None:
        return {**either, "old": {}, "new": {}, "only": "new" if first is None else "old"}
    label = {name: dict(value) if isinstance(value, dict) else value for name, value in either.items()}
    sides: tuple[Row, Row] = {}, {}
    rest: list[Key] = []
    for key in sorted(differing):
        holder, name = _HOLDERS.get(key[:-1]), key[-1]
        if holder is not None:
            label[holder].pop(name, None)
        elif key in _SHOWN:
            name = key[0]
            label[name] = None
        else:
            rest.append(key)
            continue
        for told, config in zip(sides, (old.configs[first], new.configs[second]), strict=True):
            told[name] = (config[holder] if holder else config).get(name)
    if not any(sides):  # nothing that has a column of its own
        for told, text in zip(sides, (old.whole[first], new.whole[second]), strict=True):
            flat = dict(_flat(json.loads(text)))
            told.update({".".join(key): flat.get(key) for key in rest})
    return {**label, "old": sides[0], "new": sides[1], "only": None}


def _seeds(one: Side, metric: str | None, id: str | None) -> dict[int, float]:
    return one.values.get(metric or "", {}).get(id or "", {})


def _row(label: Row, metric: str | None, old: Mapping[int, float], new: Mapping[int, float]) -> Row:
    before, after = summarize(old.values()), summarize(new.values())
    found = paired([new[seed] - old[seed] for seed in sorted(old.keys() & new.keys())])
    change = found.mean
    if change is None and before.mean is not None and after.mean is not None:
        change = after.mean - before.mean
    task = label["task"] or label["old"].get("task")
    higher = higher_is_better(task, metric) if metric and change else None
    return {
        **{name: value for name, value in label.items() if name != "only"},
        "metric": metric,
        **{f"old_{name}": getattr(before, name) for name in ("mean", "std", "n")},
        **{f"new_{name}": getattr(after, name) for name in ("mean", "std", "n")},
        "change": change,
        "low": found.low,
        "high": found.high,
        "pairs": found.n,
        "better": None if higher is None or not change else (change > 0) == higher,
        "only": label["only"],
    }
