"""The conditions under which `db.queries.rank` compares regularizers, and what counts as a regularizer of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Text, cast, select

from dropbench.db.queries.groups import GroupKeys
from dropbench.db.schema.tables import Configs
from dropbench.db.store.filters import Filter
from dropbench.harness.files import canonical_json

Name = tuple[Any, ...]
"""A regularizer, followed by the values of the keys that split it."""

BASELINE = "none"
RESULT_VERSIONS = "result_versions"
RECIPE = "recipe"


class Block(NamedTuple):
    """The conditions under which regularizers are compared; data with another fingerprint are other data."""

    task: str
    data: str
    model: str
    preset: str
    overrides: str
    fingerprint: str
    metric: str
    weights: str = ""
    mark: str | None = None
    libraries: str | None = None
    result_versions: str | None = None
    recipe: str | None = None


def shared_by(configs: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Block]:
    """Return the block of each configuration by its id, without a metric and what follows; `chosen` is as of `rank`."""
    # Equal overrides are the same object (`groups.configs`), so that few are serialized again.
    overridden = {config_id: chosen.get(config_id, config["overrides"]) for config_id, config in configs.items()}
    distinct = {id(overrides): overrides for overrides in overridden.values()}
    texts = {key: canonical_json(overrides) for key, overrides in distinct.items()}
    return {
        config_id: Block(
            **{name: config[name] for name in ("task", "data", "model", "preset", "fingerprint")},
            overrides=texts[id(overridden[config_id])],
            metric="",
        )
        for config_id, config in configs.items()
    }


def split_keys(configs: Iterable[Mapping[str, Any]], by: Sequence[str], *, versions: bool, recipes: bool) -> list[str]:
    """Return the keys that split regularizers: `by`, and what makes one a different method.

    The latter are parameters with words as values (``rescale``) that differ within a regularizer, if `versions` its
    result version, and if `recipes` the recipe that it was trained with.
    """
    values: dict[tuple[str, str], set[Any]] = defaultdict(set)
    for config in configs:
        for key, value in config["params"].items():
            if isinstance(value, str | bool):
                values[config["regularizer"], key].add(value)
    methods = sorted({key for (_, key), own in values.items() if len(own) > 1})
    others = [key for key, differ in ((RESULT_VERSIONS, versions), (RECIPE, recipes)) if differ]
    return list(dict.fromkeys([*by, *methods, *others]))


def name_of(config: Mapping[str, Any], by: Sequence[str], recipe: str | None = None) -> Name:
    """Return the regularizer of a configuration with its values of the keys `by`, one of which may be its recipe."""
    if config["regularizer"] == BASELINE:
        return (BASELINE, *(None for _ in by))
    versions = _of_regularizers(config[RESULT_VERSIONS], yes=True) if RESULT_VERSIONS in by else None
    own = {key: config[key] for key in ("schedule", "align")}
    values = {**own, **config["params"], RESULT_VERSIONS: versions, RECIPE: recipe}
    return (config["regularizer"], *(values.get(key) for key in by))


def condition_versions(result_versions: str | None) -> str | None:
    """Return those of a configuration's result versions that are not of its regularizer, None if all are 1."""
    return _of_regularizers(result_versions, yes=False)


def _of_regularizers(result_versions: str | None, *, yes: bool) -> str | None:
    texts = (result_versions or "").split(", ")
    return ", ".join(text for text in texts if text and is_of_regularizer(text) == yes) or None


def is_of_regularizer(item: str) -> bool:
    """Return whether an item, such as ``task translation``, is a part of the method: a regularizer or a schedule."""
    return item.startswith(("regularizer ", "schedule "))


def initial_weights(connection: Connection, filter: Filter) -> dict[str, str]:
    """Return the digests of initial weights by configuration, of those that have any."""
    has_any = cast(Configs.c.config, Text).not_like('%"weights": null%')
    query = select(Configs.c.id, Configs.c.config).where(*filter.on_configs(Configs.c.id), has_any)
    return {id: config["weights"]["digest"] for id, config in connection.execute(query) if config["weights"]}


def values_over_seeds(keys: GroupKeys, connection: Connection, name: str) -> dict[tuple[Any, ...], list[float]]:
    """Return the values over seeds by key."""
    by_key: dict[tuple[Any, ...], list[float]] = {}
    for key, values, _ in keys.finals(connection, name):
        by_key.setdefault(key, []).extend(value for value in values if value is not None)
    return {key: values for key, values in by_key.items() if values}
