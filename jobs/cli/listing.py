"""The items of `dropbench list`, each as a plain mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from textwrap import wrap
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import Entry, Registry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.composition import part_ratios
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.regularizers.spec import build_regularizer, complete_spec, describe_parameters, parse_spec
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import Cell
from dropbench.harness.suites.suite import load_suite, suite_names
from dropbench.harness.trials.result_versions import item_version
from dropbench.harness.trials.task import TASKS


def list_items(kind: str) -> list[dict[str, Any]]:
    """Return the items of a kind: tasks, models, data, regularizers, schedules, suites, or published values."""
    if kind == "data":  # the other kinds need not wait for this import
        from dropbench.tasks.data import DATASETS
        from dropbench.tasks.data.check import list_datasets

        statuses = list_datasets(Settings.from_environment())
        return [{**status.to_json(), **_plugin(DATASETS.entry(status.dataset.name))} for status in statuses]
    if kind == "suites":
        return [_suite(name) for name in suite_names()]
    if kind == "published":
        return [_published(cell) for name in suite_names() for cell in load_suite(name).published()]
    if kind == "models":
        return [_model(name) for name in MODELS]
    if kind == "regularizers":
        return [_regularizer(name) for name in REGULARIZERS]
    registries: dict[str, Registry[Any]] = {"tasks": TASKS, "schedules": SCHEDULES}
    return [
        {
            "name": entry.name,
            **entry.facts,
            **_version_fact(f"{kind[:-1]} {entry.name}"),
            "help": entry.help,
            **_plugin(entry),
        }
        for entry in map(registries[kind].entry, registries[kind])
    ]


def regularizer_item(name: str) -> dict[str, Any]:
    """Return the item of a regularizer with its card and its parameters; raise InputError if one is broken."""
    card = find_card(name)
    return {
        **_regularizer(name),
        "defaults": complete_spec(name).label(),
        "parameters": describe_parameters(name),
        "card": None if card is None else {**card.model_dump(mode="json"), "spec": card.spec(name)},
    }


def card_lines(item: Mapping[str, Any], width: int = 80) -> list[str]:
    """Return a `regularizer_item` as lines of text; only a formula or an address may be wider than `width`."""
    card = item["card"] or {}
    cost = [f"forward passes per step: {card['passes']}", f"memory: {card['memory']}"] if card else []
    facts = {
        "acts on": [item["acts_on"]],
        "formula": card.get("formula", "").split(r" \qquad "),
        "source": [card.get("source"), card.get("url")],
        "cost": cost,
        "as published": [f"--regularizer {card['spec']}"] if card.get("defaults") else [],
        "tuned over": [f"{key}={', '.join(map(str, values))}" for key, values in card.get("tuning", {}).items()],
        "published": card.get("published", ()),
        "left open": card.get("open", ()),
        "unsuitable for": card.get("unsuitable", ()),
        "parameters": [
            f"{key}={each['default']}: {each['help']}".removesuffix(": ") for key, each in item["parameters"].items()
        ],
        "plug-in": [item.get("plugin")],
    }
    lines = [*wrap(f"{item['name']}: {item['help']}", width, subsequent_indent="  "), ""]
    indent = max(map(len, facts)) + 4
    for title, texts in facts.items():
        label = f"  {title}"
        for text in filter(None, texts):
            wrapped = wrap(text, width - indent, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for line in wrapped:
                lines.append(f"{label:{indent}}{line}")
                label = ""
    return lines


def list_sites(model: str, regularizer: str) -> list[dict[str, Any]]:
    """Return the attention sites of a model, with each site's ratio in the regularizer's schedule.

    The ratio of a composition is a mapping from the names of the parts that act at the site.

    Raises:
        InputError: the model, the regularizer or a parameter is unknown.
    """
    from dropbench.harness.models.regularize import bind

    spec = parse_spec(regularizer)
    built = build_regularizer(spec.name, **spec.params)
    report = bind(build_for_sample(model), built, schedule=spec.schedule or "constant")
    return [
        {
            "name": site.name,
            "kind": site.kind,
            "layer": site.layer + 1,
            "depth": site.depth,
            "heads": site.heads,
            "grid": "×".join(map(str, site.grid)) if site.grid else "",
            "prefix": site.num_prefix_tokens,
            "ratio": dict(part_ratios(site)) or site.ratio,
            "left alone": reason,
        }
        for site, reason in [*((site, "") for site in report.bound), *report.skipped]
    ]


def _regularizer(name: str) -> dict[str, Any]:
    entry = REGULARIZERS.entry(name)
    card = find_card(name)
    facts = {key: value for key, value in entry.facts.items() if key != "card"}
    facts |= _version_fact(f"regularizer {entry.name}")
    return {"name": entry.name, "acts_on": card.acts_on if card else "", **facts, "help": entry.help, **_plugin(entry)}


def _plugin(entry: Entry) -> dict[str, str]:
    return {"plugin": entry.plugin} if entry.plugin else {}


def _model(name: str) -> dict[str, Any]:
    entry = MODELS.entry(name)
    parameters = entry.facts.get("parameters")
    if parameters is None and "sample" in entry.facts:
        with suppress(Exception, SystemExit):  # a plug-in's model that cannot be built is listed nevertheless
            parameters = sum(parameter.numel() for parameter in build_for_sample(name).parameters())
    facts = {"parameters": parameters, "tasks": list(entry.facts.get("tasks", TASKS)), **_version_fact(f"model {name}")}
    return {"name": name, **facts, "help": entry.help}


def _version_fact(item: str) -> dict[str, int]:
    """Return an item's result version if it is not 1."""
    with suppress(Exception, SystemExit):  # a plug-in's item that is broken is listed nevertheless
        version = item_version(item)
        return {"result_version": version} if version != 1 else {}
    return {}


def build_for_sample(name: str) -> Any:
    """Build a model on torch's meta device for its sample data; raise InputError if it has none."""
    import torch

    entry = MODELS.entry(name)
    if "sample" not in entry.facts:
        raise InputError(
            f"model '{entry.name}' has no sample data: register it with its sizes, such as sample={{'classes': 4}}"
        )
    with torch.device("meta"):
        return MODELS.get(name)(entry.name, {}, **entry.facts["sample"])


def _published(cell: Cell) -> dict[str, Any]:
    """Return a published value with its conditions."""
    value, std = cell.published if isinstance(cell.published, tuple) else (cell.published, None)
    request = cell.request
    names = ("task", "data", "model", "regularizer", "params", "schedule", "align", "overrides")
    conditions = {"row": cell.row, "column": cell.column, **{name: getattr(request, name) for name in names}}
    return {"suite": cell.suite, "metric": cell.metric, "value": value, "std": std, "conditions": conditions}


def columns_of(key: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key of a recipe (`tasks.recipe_keys`) with its default of each preset in a column of its own."""
    defaults = {preset: f"{value:g}" if isinstance(value, float) else value for preset, value in key["default"].items()}
    return {"key": key["key"], **defaults, "type": key["type"], "unit": key["unit"], "meaning": key["meaning"]}


def published_lines(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Shorten published values for a table: as printed, with only the main conditions."""
    return [
        {
            "suite": item["suite"],
            "metric": item["metric"],
            "value": f"{item['value']:.10g}" + ("" if item["std"] is None else f" ± {item['std']:.10g}"),
            **{name: item["conditions"][name] for name in ("row", "column", "data", "model")},
        }
        for item in items
    ]


def _suite(name: str) -> dict[str, Any]:
    suite = load_suite(name)
    published = sum(number is not None for row in suite.rows for number in row.published or ())
    return {
        "name": name,
        "cells": len(suite.rows) * len(suite.columns),
        "published": published,
        "title": suite.title,
        "source": suite.source,
    }
