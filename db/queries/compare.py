"""Compare two sets of trials, configuration by configuration, with confidence intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from dropbench.db.queries.groups import COLUMNS
from dropbench.db.queries.marks import mark_alike, mark_text
from dropbench.db.queries.results import sort_key
from dropbench.db.queries.sides import Id, Key, Side
from dropbench.db.queries.task_metrics import directed_metric
from dropbench.db.statistics.corrections import SIGNIFICANCE, benjamini_hochberg, holm
from dropbench.db.statistics.seeds import summarize
from dropbench.db.statistics.t_test import paired_t_test
from dropbench.db.store.rows import Row

Part = tuple[str, str, tuple[Key, ...]]
"""A field of a configuration, its value as text, and the leaves whose values dev has chosen, which are equal."""
_CHOSEN = "chosen"

_OWN_COLUMN = {("task",), ("data", "name"), ("model",), ("schedule",), ("align",), ("preset",), ("regularizer", "name")}
_OWN_COLUMN |= {("libraries",), ("origin",), ("seeds",)}
_FINGERPRINT = {("data", "fingerprint")}
_HOLDERS = {("regularizer", "params"): "params", ("overrides",): "overrides"}


def compare(old: Side, new: Side) -> list[Row]:
    """Match the configurations of both sides, ignoring what dev has chosen and keys without a value common to both.

    Returns:
        a row for each pair of configurations and metric, and for each configuration that only one side has:

        - task, data, model, regularizer, params, schedule, align, preset, overrides: if both sides agree, else None;
        - old, new: the differing values, by name;
        - metric, old_mean, old_std, old_n, new_mean, new_std, new_n: over seeds;
        - change: the mean difference over seeds that both have (`pairs` of them), else the difference of the means;
        - libraries, in databases with different versions of a library: those of the trials;
        - origin, in databases with reference trials: ``own`` or ``reference``;
        - seeds, in databases of tuned presets: ``tuning`` if no table has the seeds;
        - mark: ``subset`` or ``synthetic`` if the data of either side are, ``older rule`` if its result version is, and
          what distinguishes rows that are equal otherwise, such as ``recipe.lr 0.001``;
        - low, high: its 95 % confidence interval, None for the reason `no_interval`;
        - p_value: of the paired t-test;
        - p_holm, p_bh: the same, corrected (Holm, Benjamini-Hochberg) for all rows whose metric has a direction;
        - better: whether the change is an improvement by the metric's direction; None: no change or no direction;
        - verdict: the same in words (`_verdict`), with how certain it is;
        - only: ``old`` or ``new`` if the other side has no such configuration.
    """
    differing, pairs = _match(old, new)
    names = list(dict.fromkeys([*old.values, *new.values]))
    rows = []
    labels = [_label(old, first, new, second, differing | _chosen(old, first, new, second)) for first, second in pairs]
    mark_alike(labels, [old.config_json.get(first or ()) or new.config_json[second or ()] for first, second in pairs])
    for label, (old_id, new_id) in zip(labels, pairs, strict=True):
        sides = (old, old_id or ()), (new, new_id or ())
        seeds = {name: [side.values.get(name, {}).get(id, {}) for side, id in sides] for name in names}
        measured = [_row(label, name, *values) for name, values in seeds.items() if any(values)]
        rows += measured or [_row(label, None, {}, {})]
    _correct([row for row in rows if row["verdict"] is not None])
    order = [*COLUMNS, "old", "new", "only", "metric"]
    return sorted(rows, key=lambda row: (row["only"] is not None, [sort_key(row[name]) for name in order]))


def _match(old: Side, new: Side) -> tuple[set[Key], list[tuple[Id | None, Id | None]]]:
    """Return the keys in which the sides differ, and the pairs of configurations that agree in all others."""
    if not old.configs.keys().isdisjoint(new.configs):
        # A configuration of both sides has a value of every key on both sides: they differ in no key.
        ids = dict.fromkeys([*old.configs, *new.configs])
        return set(), [(id if id in old.configs else None, id if id in new.configs else None) for id in ids]
    leaves: dict[Part, dict[Key, str]] = {}
    old_parts, new_parts = _parts(old, leaves), _parts(new, leaves)
    differing = _differing(old_parts, new_parts, leaves) if old_parts and new_parts else set()
    common = {
        part: frozenset(leaf for leaf in flat.items() if leaf[0] not in differing) for part, flat in leaves.items()
    }  # fmt: skip
    matches: dict[Any, tuple[list[Id | None], list[Id | None]]] = {}
    for number, side in enumerate((old_parts, new_parts)):
        for id, parts in side.items():
            key = tuple(common[part] for part in parts if common[part])
            matches.setdefault(key, ([], []))[number].append(id)
    return differing, [
        pair for old_ids, new_ids in matches.values() for pair in product(old_ids or [None], new_ids or [None])
    ]  # fmt: skip


def _parts(side: Side, leaves: dict[Part, dict[Key, str]]) -> dict[Id, list[Part]]:
    """Return the fields of each configuration; add the leaves of each field to `leaves` once, as many share them."""
    by_config: dict[Id, list[Part]] = {}
    for id, text in side.config_json.items():
        by_config[id] = parts = []
        chosen = side.chosen.get(id, ())
        for name, value in sorted(json.loads(text).items()):
            part = name, repr(value), chosen
            if part not in leaves:
                leaves[part] = dict(_flatten({name: value})) | {key: _CHOSEN for key in chosen if key[0] == name}
            parts.append(part)
    return by_config


def _differing(
    old: Mapping[Id, Sequence[Part]], new: Mapping[Id, Sequence[Part]], leaves: Mapping[Part, Mapping[Key, str]]
) -> set[Key]:
    """Return the keys without a value that occurs on both sides; a missing key counts as a value."""
    sides = [{part for parts in side.values() for part in parts} for side in (old, new)]
    differing = set()
    for field_name in {name for side in sides for name, *_ in side}:
        old_leaves, new_leaves = ([leaves[part] for part in side if part[0] == field_name] or [{}] for side in sides)
        for key in {key for flat in (*old_leaves, *new_leaves) for key in flat}:
            if {flat.get(key) for flat in old_leaves}.isdisjoint(flat.get(key) for flat in new_leaves):
                differing.add(key)
    return differing


def _flatten(config: Mapping[str, Any], prefix: Key = ()) -> Iterator[tuple[Key, str]]:
    """Yield the leaves of a configuration as text that distinguishes 1, 1.0 and true, as a trial's id does."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _flatten(value, (*prefix, name))
        elif (*prefix, name) != ("data", "path"):  # no part of what determines a number
            yield (*prefix, name), repr(value)


def _label(old: Side, old_id: Id | None, new: Side, new_id: Id | None, differing: set[Key]) -> Row:
    """Return the columns in which a pair agrees, its differing values, and which side lacks the configuration."""
    either = old.configs[old_id] if old_id is not None else new.configs[new_id or ()]
    if old_id is None or new_id is None:
        side = "new" if old_id is None else "old"
        return {**either, "old": {}, "new": {}, "only": side}
    label = {name: dict(value) if isinstance(value, dict) else value for name, value in either.items()}
    both = (configs[id]["mark"] or "" for configs, id in ((old.configs, old_id), (new.configs, new_id)))
    label["mark"] = mark_text(mark for text in both for mark in text.split(", "))
    sides: tuple[Row, Row] = {}, {}
    without_column: list[Key] = []
    versioned = {key[1] for key in differing if key[0] == "result_versions"}
    if versioned:
        texts = _differing_versions(old.config_json[old_id], new.config_json[new_id], versioned)
        label["result_versions"] = None if any(texts) else label["result_versions"]
        for values, text in zip(sides, texts, strict=True):
            values.update({"result_versions": text} if any(texts) else {})
    for key in sorted(differing):
        holder, name = _HOLDERS.get(key[:-1]), key[-1]
        if key[0] == "result_versions":
            continue
        if holder is not None:
            label[holder].pop(name, None)
        elif key in _OWN_COLUMN | _FINGERPRINT:
            name = key[0] if key in _OWN_COLUMN else "fingerprint"
            label[name] = None
            if key in _FINGERPRINT and ("data", "name") in differing:
                continue  # other data have another fingerprint
        else:
            without_column.append(key)
            continue
        for values, config in zip(sides, (old.configs[old_id], new.configs[new_id]), strict=True):
            values[name] = _column(config, (*key[:-1], name))
    if not any(sides):
        for values, text in zip(sides, (old.config_json[old_id], new.config_json[new_id]), strict=True):
            flat = dict(_flatten(json.loads(text)))
            values.update({".".join(key): flat.get(key) for key in without_column})
    return {**label, "old": sides[0], "new": sides[1], "only": None}


def _chosen(old: Side, old_id: Id | None, new: Side, new_id: Id | None) -> set[Key]:
    """Return the leaves of which dev has chosen different values for a pair."""
    if old_id is None or new_id is None:
        return set()
    both = old.configs[old_id], new.configs[new_id]
    keys = {*old.chosen.get(old_id, ()), *new.chosen.get(new_id, ())}
    return {key for key in keys if len({repr(_column(config, key)) for config in both}) > 1}


def _column(config: Row, key: Key) -> Any:
    """Return the value of a leaf, None if no column holds it."""
    holder = _HOLDERS.get(key[:-1])
    return (config[holder] if holder else config).get(key[-1])


def _differing_versions(old: str, new: str, items: set[str]) -> tuple[str | None, str | None]:
    """Return the result versions of `items` on each side; without those that are 1, unless the other side's is not."""
    versions: list[dict[str, str]] = [json.loads(text)["result_versions"] for text in (old, new)]
    named = [item for item in sorted(items) if any(own.get(item, "1") != "1" for own in versions)]
    first, second = (", ".join(f"{item} {own[item]}" for item in named if item in own) or None for own in versions)
    return first, second


def _row(label: Row, name: str | None, old: Mapping[int, float], new: Mapping[int, float]) -> Row:
    before, after = summarize(old.values()), summarize(new.values())
    test = paired_t_test([(new[seed], old[seed]) for seed in sorted(old.keys() & new.keys())])
    change = test.mean
    if change is None and before.mean is not None and after.mean is not None:
        change = after.mean - before.mean
    task = label["task"] or label["old"].get("task")
    metric = directed_metric(task, name) if name else None
    better = None if metric is None or not change else metric.score(change) > 0
    return {
        **{column: value for column, value in label.items() if column != "only"},
        "metric": name,
        **{f"old_{column}": getattr(before, column) for column in ("mean", "std", "n")},
        **{f"new_{column}": getattr(after, column) for column in ("mean", "std", "n")},
        "change": change,
        "low": test.low,
        "high": test.high,
        "no_interval": None if change is None else test.no_interval,
        "pairs": test.n,
        "p_value": test.p,
        "p_holm": None,
        "p_bh": None,
        "better": better,
        "verdict": None if metric is None or change is None else "",
        "only": label["only"],
    }


def _correct(rows: Sequence[Row]) -> None:
    """Add the corrected p-values and the verdicts to the rows of a family of comparisons."""
    p_values = [row["p_value"] for row in rows]
    for row, p_holm, p_bh in zip(rows, holm(p_values), benjamini_hochberg(p_values), strict=True):
        row.update(p_holm=p_holm, p_bh=p_bh, verdict=_verdict(row["better"], row["p_value"], p_holm))


def _verdict(better: bool | None, p: float | None, p_holm: float | None) -> str | None:
    """Return better or worse, qualified if the change is not significant after Holm's correction."""
    if better is None:
        return None
    word = "better" if better else "worse"
    if p is None or p_holm is None:
        return f"{word}, untested"
    if p_holm < SIGNIFICANCE:
        return word
    return f"{word}, uncorrected" if p < SIGNIFICANCE else f"{word}, within noise"
