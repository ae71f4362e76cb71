"""Data from which the page's script draws any two trials side by side: their recipes, and their curves overlaid."""

from __future__ import annotations

import numpy as np

from dropbench.db.queries.marks import flatten
from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.formats.numbers import format_metric
from dropbench.db.report.page.charts import Group, band_chart, rounded
from dropbench.db.report.page.limits import points_per_curve
from dropbench.db.report.page.records import Curve, load_configs
from dropbench.db.report.page.training import Training
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store


def comparison(view: View, training: Training, store: Store) -> Group | None:
    """Return the comparison of the trials that have curves; None for fewer than two."""
    if len(training.curves) < 2:
        return None
    drawn = {
        position: [seed for seed in view.cells[position].seeds if seed.id in ids and seed.id in training.curves]
        for position, ids in training.trials.items()
    }
    drawn = {position: seeds for position, seeds in drawn.items() if seeds}
    loaded = load_configs(store, [seeds[0].id for seeds in drawn.values()])
    configs = {position: flatten(loaded.get(seeds[0].id, {})) for position, seeds in drawn.items()}
    keys = sorted({key for config in configs.values() for key in config})
    differing = [key for key in keys if len({config.get(key) for config in configs.values()}) > 1]
    points = points_per_curve(sum(map(len, training.curves.values())))
    cells = [
        {
            "row": cut(row, 80),
            "column": cut(column, 80),
            "metric": view.cells[row, column].metric.name,
            "config": [cut(configs[row, column].get(key, "–"), 200) for key in differing],
            "trials": [
                {
                    "id": seed.id,
                    "seed": seed.seed,
                    "state": seed.state,
                    "value": format_metric(seed.value, view.cells[row, column].metric),
                    "curves": {name: _thinned(curve, points) for name, curve in training.curves[seed.id].items()},
                }
                for seed in seeds
            ],
        }
        for (row, column), seeds in drawn.items()
    ]
    chart = band_chart("", "", ["", "first", "second"], {}, "value").spec
    lead = "Keys of the recipe in which two trials differ, and their curves. The lists have the trials with curves."
    data = {"keys": differing, "cells": cells, "chart": chart}
    return Group("compare", "Two trials side by side", [lead], comparison=data)


def _thinned(curve: Curve, max_points: int) -> list[list[float]]:
    """Return the steps and the values of a curve, evenly thinned, with its first and last point."""
    finite = [(step, value) for step, value in curve if value is not None]
    if len(finite) > max_points:
        finite = [finite[index] for index in np.linspace(0, len(finite) - 1, max_points).round().astype(int)]
    return [[step for step, _ in finite], [rounded(value) for _, value in finite]]
