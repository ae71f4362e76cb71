"""How the trials of a suite were trained: their curves, and the ratio of each layer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from db.report.page import charts
from db.report.page.bands import Band, band
from db.report.page.charts import MOST_CHARTS, MOST_ROWS, Chart, Group, labels
from db.report.page.records import curves
from db.report.text import cut
from db.report.view import Outcome, View
from db.store import Store
from harness.analysis import analysis_of
from harness.task import outline_of

MOST_SEEDS = 10
MOST_TRIALS = 300
"""Trials whose curves are read."""
MOST_POINTS = 200
"""Of a curve."""
ALL_POINTS = 16_000
"""Of all curves of a page: about a megabyte."""

_SITE = re.compile(r"^  (?P<site>\S+)\s+(?P<kind>\S+)\s+layer (?P<layer>\d+)/\d+ .*\bratio (?P<ratio>[\d.]+)")


def learning_curves(view: View, store: Store, runs: Path) -> Group | None:
    """The dev metric and the training loss by step, a plot of each a column."""
    rows = view.rows[:MOST_ROWS]
    cells = [one for one in view.cells.values() if one.row in rows and one.seeds]
    chosen = _chosen(cells)
    names = {one.column: f"dev/{_task_metric(one)}" for one in cells}
    found = curves(store, runs, [id for ids in chosen.values() for id in ids], ["train/loss", *set(names.values())])
    if not found:
        return None
    most = max(20, min(MOST_POINTS, ALL_POINTS // (2 * len(chosen))))
    legend = labels(rows)
    group = Group(
        "curves", "Learning curves",
        header=("column", "row", "seeds", "best dev", "at step", "last training loss"),
    )  # fmt: skip
    group.lead.append("Lines: mean over seeds; bands: from the lowest to the highest seed.")
    every = sum(len(one.seeds) for one in view.cells.values())
    if sum(map(len, chosen.values())) < every:
        group.lead.append(
            f"Drawn of {sum(map(len, chosen.values())):,} of {every:,} trials, the first seeds of each cell."
        )
    group.first_of(2 * len(view.columns), "plots")
    drawn: set[int] = set()
    for column in view.columns:
        cells = [one for one in view.column(column) if (one.row, column) in chosen]
        loss: dict[int, Band] = {}
        dev: dict[int, Band] = {}
        for outcome in cells:
            ids = chosen[outcome.row, column]
            for name, into in (("train/loss", loss), (names[column], dev)):
                merged = band([found.get(id, {}).get(name, []) for id in ids], most)
                if merged is not None:
                    into[rows.index(outcome.row)] = merged
        for name, into in ((names[column].replace("/", " "), dev), ("training loss", loss)):
            if into and len(group.charts) < MOST_CHARTS:
                told = f"{name} by step: {column}"
                group.charts.append(Chart(f"{column}: {name}", told, charts.bands(told, legend, into, "step", name)))
        drawn |= {*dev, *loss}
        group.rows += [
            _curve_row(column, legend[place], cells, dev.get(place), loss.get(place)) for place in sorted({*dev, *loss})
        ]
    group.legend = [(place, legend[place]) for place in sorted(drawn)]
    return group


def _chosen(cells: Sequence[Outcome]) -> dict[tuple[str, str], list[str]]:
    """The trials whose curves are drawn, by row and column: as many seeds of each as all of them leave."""
    cells = cells[:MOST_TRIALS]
    most = max(1, min(MOST_SEEDS, MOST_TRIALS // max(1, len(cells))))
    begun = {
        (one.row, one.column): [seed.id for seed in one.seeds if seed.state not in ("queued", "not run", "skipped")][
            :most
        ]
        for one in cells
    }
    return {place: ids for place, ids in begun.items() if ids}


def _task_metric(outcome: Outcome) -> str:
    """Of what an analysis measured, the task's first metric."""
    if analysis_of(outcome.cell.metric) is None:
        return outcome.cell.metric
    return outline_of(outcome.cell.request.task).metrics[0].name


def _curve_row(column: str, row: str, cells: Sequence[Outcome], dev: Band | None, loss: Band | None) -> tuple[str, ...]:
    best, at = "", ""
    if dev is not None:
        higher = cells[0].metric.higher_is_better is not False
        place = int(dev.mean.argmax() if higher else dev.mean.argmin())
        best, at = f"{dev.mean[place]:.4g}", f"{int(dev.steps[place]):,}"
    seeds = max(one.seeds for one in (dev, loss) if one is not None)
    return column, row, str(seeds), best, at, "" if loss is None else f"{loss.mean[-1]:.4g}"


def ratios_by_layer(view: View, runs: Path) -> Group | None:
    """The ratio that each site was given, as the runs noted it; only where a schedule makes layers differ."""
    if all(one.schedule == "constant" for one in view.cells.values()):
        return None
    group = Group("layers", "Drop ratio by layer", header=("model", "row", "site", "kind", "layer", "ratio"))
    panels: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    seen: set[tuple[str, str]] = set()
    for outcome in list(view.cells.values())[:MOST_TRIALS]:
        model = outcome.cell.request.model
        if (model, outcome.row) in seen or outcome.cell.request.regularizer == "none":
            continue
        for site in next((its for seed in outcome.seeds[:3] if (its := _sites(runs / seed.id))), []):
            seen.add((model, outcome.row))
            panels.setdefault((model, site["kind"]), {}).setdefault(outcome.row, []).append(site)
    if not panels:
        return None
    shown, legend = list(view.rows), labels(view.rows)
    drawn = sorted({shown.index(row) for rows in panels.values() for row in rows})
    group.lead.append("As the runs noted it.")
    group.legend = [(place, legend[place]) for place in drawn]
    for (model, kind), rows in list(panels.items())[:MOST_CHARTS]:
        found = [(shown.index(row), site) for row, sites in rows.items() for site in sites]
        points = [{"r": r, "x": one["layer"], "y": one["ratio"], "s": cut(one["site"], 80)} for r, one in found]
        told = f"drop ratio by layer: {model}, {kind}"
        group.charts.append(Chart(f"{model}, {kind}", told, charts.by_layer(told, legend, points, "drop ratio")))
        group.rows += [
            (model, legend[r], one["site"], kind, str(one["layer"]), f"{one['ratio']:.3f}") for r, one in found
        ]
    return group


def _sites(directory: Path) -> list[Mapping[str, Any]]:
    """The sites of a run with their ratios, of which there may be several stacks."""
    try:
        lines = json.loads((directory / "environment.json").read_bytes())["sites"]
        matches = [found for line in lines if (found := _SITE.match(line))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [
        {"site": one["site"], "kind": one["kind"], "layer": int(one["layer"]), "ratio": float(one["ratio"])}
        for one in matches
    ]
