"""What `dropbench list` shows: each item as a plain mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from harness.errors import InputError
from harness.models import MODELS
from harness.registry import Registry, load
from harness.regularizers import REGULARIZERS
from harness.regularizers.spec import build_regularizer, parse_spec
from harness.schedules import SCHEDULES
from harness.suite import Cell, load_suite, suite_names
from harness.task import TASKS


def list_items(kind: str) -> list[dict[str, Any]]:
    """The items of a kind: tasks, models, data, regularizers, schedules, suites, or published numbers."""
    if kind == "suites":
        return [_suite(name) for name in suite_names()]
    if kind == "published":
        return [_published(cell) for name in suite_names() for cell in load_suite(name).published()]
    if kind == "models":
        return [_model(name) for name in MODELS]
    registries: dict[str, Registry[Any]] = {"tasks": TASKS, "regularizers": REGULARIZERS, "schedules": SCHEDULES}
    registry = registries[kind] if kind in registries else load("tasks.data:DATASETS")
    items = []
    for name in registry:
        entry = registry.entry(name)
        plugin = {"plugin": entry.plugin} if entry.plugin else {}
        items.append({"name": name, **entry.facts, "help": entry.help, **plugin})
    return items


def list_sites(model: str, regularizer: str) -> list[dict[str, Any]]:
    """The attention sites of a model, with the ratio that the regularizer's schedule gives each.

    Raises:
        InputError: an unknown model, regularizer or parameter.
    """
    from harness.binding import bind

    name, params = parse_spec(regularizer)
    schedule = str(params.pop("schedule", "constant"))
    report = bind(build_for_sample(model), build_regularizer(name, **params), schedule=schedule)
    bound = [(site, "") for site in report.bound]
    return [
        {
            "name": site.name,
            "kind": site.kind,
            "layer": site.layer + 1,
            "depth": site.depth,
            "heads": site.heads,
            "grid": "×".join(map(str, site.grid)) if site.grid else "",
            "prefix": site.prefix,
            "ratio": site.ratio,
            "left alone": reason,
        }
        for site, reason in [*bound, *report.left]
    ]


def _model(name: str) -> dict[str, Any]:
    entry = MODELS.entry(name)
    parameters = entry.facts.get("parameters")
    if parameters is None and "sample" in entry.facts:
        with suppress(InputError):  # a plug-in's model that cannot be built is listed, too
            parameters = sum(parameter.numel() for parameter in build_for_sample(name).parameters())
    return {"name": name, "parameters": parameters, "tasks": list(entry.facts["tasks"]), "help": entry.help}


def build_for_sample(name: str) -> Any:
    """The model on torch's meta device, for the data that its facts name; nothing is computed or stored."""
    import torch

    entry = MODELS.entry(name)
    if "sample" not in entry.facts:
        raise InputError(f"model '{entry.name}' does not say what data to build it for: expected sample={{…}}")
    with torch.device("meta"):
        return MODELS.get(name)(entry.name, {}, **entry.facts["sample"])


def _published(cell: Cell) -> dict[str, Any]:
    """A number that a source prints; `conditions` say of what."""
    value, std = cell.published if isinstance(cell.published, tuple) else (cell.published, None)
    request = cell.request
    conditions = {
        "row": cell.row,
        "column": cell.column,
        "task": request.task,
        "data": request.data,
        "model": request.model,
        "regularizer": request.regularizer,
        "params": request.params,
        "schedule": request.schedule,
        "align": request.align,
        "overrides": request.overrides,
    }
    return {"suite": cell.suite, "metric": cell.metric, "value": value, "std": std, "conditions": conditions}


def published_lines(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Published numbers for reading: as printed, without what their place in the table says."""
    return [
        {
            "suite": item["suite"],
            "metric": item["metric"],
            "value": f"{item['value']:.10g}" + ("" if item["std"] is None else f" ± {item['std']:.10g}"),
            "row": item["conditions"]["row"],
            "column": item["conditions"]["column"],
            "data": item["conditions"]["data"],
            "model": item["conditions"]["model"],
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
