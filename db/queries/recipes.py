"""Recipes that changed between trials of the same preset: the keys that differ, so that they are never averaged."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select

from dropbench.db.queries.marks import flatten
from dropbench.db.schema.tables import Configs
from dropbench.db.store.filters import Filter
from dropbench.harness.trials.alignment import FINETUNE_KEYS

LENGTHS = frozenset({"steps", "epochs"})
"""Keys of which an override of one removes the other from a recipe."""
OF_REGULARIZERS = FINETUNE_KEYS | {"kinds"}
"""Keys that only the recipes of some regularizers have."""

Values = dict[str, str]
"""Values of recipe keys, as texts."""


def changed_keys(connection: Connection, filter: Filter, conditions: Mapping[str, Any]) -> dict[str, Values]:
    """Return by configuration the values of those recipe keys that differ under the same conditions.

    A key that a configuration overrides is none of them: overrides are conditions.

    Args:
        connection: a read transaction.
        filter: selects the configurations.
        conditions: the conditions of each configuration by its id, such as its task, data and overrides.

    Returns:
        an entry for each configuration that has such a key.
    """
    texts = (Configs.c.config[key].as_string() for key in ("recipe", "overrides"))
    query = select(Configs.c.id, *texts).where(*filter.on_configs(Configs.c.id))
    groups: defaultdict[Any, dict[str, tuple[str, str]]] = defaultdict(dict)
    for id, recipe, overrides in connection.execute(query):
        groups[conditions[id]][id] = recipe, overrides
    changed: dict[str, Values] = {}
    for group in groups.values():
        if len({recipe for recipe, _ in group.values()}) > 1:
            changed |= _differing(group)
    return changed


def _differing(group: Mapping[str, tuple[str, str]]) -> dict[str, Values]:
    """Return the keys of recipes whose values differ, by id; `group` has recipes and overrides as JSON."""
    recipes = {id: flatten(json.loads(recipe)) for id, (recipe, _) in group.items()}
    keys = {key for recipe in recipes.values() for key in recipe}
    values: dict[str, Values] = {}
    for id, (_, overrides) in group.items():
        given = set(json.loads(overrides))
        given |= LENGTHS if given & LENGTHS else set()
        given |= OF_REGULARIZERS - recipes[id].keys()
        values[id] = {key: recipes[id].get(key, "none") for key in keys - given}
    differing = {key for key in keys if len({own[key] for own in values.values() if key in own}) > 1}
    own = {id: {key: own[key] for key in sorted(differing & own.keys())} for id, own in values.items()}
    return {id: value for id, value in own.items() if value}


def recipe_label(values: Values, without: Iterable[str] = ()) -> str | None:
    """Return values of recipe keys as ``lr=0.001, warmup=0.1``; None if there are none."""
    return ", ".join(f"{key}={value}" for key, value in values.items() if key not in without) or None
