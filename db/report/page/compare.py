"""Data from which the page's script draws any two trials side by side: their recipes, and their curves overlaid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from db.queries.marks import flatten
from db.report.formats.escaping import cut
from db.report.formats.numbers import format_metric
from db.report.page.charts import Group, band_chart, rounded
from db.report.page.limits import points_per_curve
from db.report.page.records import Curve, load_configs
from db.report.page.training import Training
from db.report.view.view import View
from db.store.store import Store


def comparison(view: View, training: Training, store: Store) -> Group | None:
    """Return the comparison of the trials that have curves; None for fewer than two."""
    if len(training.curves) < 2:
        return None
    first = {
        position: next((id for id in ids if id in training.curves), None) for position, ids in training.trials.items()
    }
    configs = {id: flatten(config) for id, config in load_configs(store, [id for id in first.values() if id]).items()}
    keys = sorted({key for config in configs.values() for key in config})
    differing = [key for key in keys if len({config.get(key) for config in configs.values()}) > 1]
    points = points_per_curve(sum(map(len, training.curves.values())))
    cells: list[dict[str, Any]] = []
    for position, ids in training.trials.items():
        result = view.cells[position]
        config = configs.get(first[position] or "", {})
        trials = [
            {
                "id": seed.id,
                "seed": seed.seed,
                "state": seed.state,
                "value": format_metric(seed.value, result.metric),
                "curves": {name: _thinned(curve, points) for name, curve in training.curves[seed.id].items()},
            }
            for seed in result.seeds
            if seed.id in ids and seed.id in training.curves
        ]
        if trials:
            cells.append(
                {
                    "row": cut(result.row, 80),
                    "column": cut(result.column, 80),
                    "metric": result.metric.name,
                    "config": [cut(config.get(key, "–"), 200) for key in differing],
                    "trials": trials,
                }
            )
    chart = band_chart("", "", ["", "first", "second"], {}, "value").spec
    data: Mapping[str, Any] = {"keys": differing, "cells": cells, "chart": chart}
    lead = "Keys of the recipe in which two trials differ, and their curves. The lists have the trials with curves."
    return Group("compare", "Two trials side by side", [lead], comparison=data)


def _thinned(curve: Curve, max_points: int) -> list[list[float]]:
    """Return the steps and the values of a curve, evenly thinned, with its first and last point."""
    finite = [(step, value) for step, value in curve if value is not None]
    if len(finite) > max_points:
        finite = [finite[index] for index in np.linspace(0, len(finite) - 1, max_points).round().astype(int)]
    return [[step for step, _ in finite], [rounded(value) for _, value in finite]]
