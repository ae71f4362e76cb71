"""Charts of the training of a suite's trials: learning curves, and the drop ratio of each layer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.page import charts
from dropbench.db.report.page.charts import Group, labels
from dropbench.db.report.page.details import load_environment, text_list
from dropbench.db.report.page.limits import Limits, points_per_curve
from dropbench.db.report.page.records import Points, SeedBand, load_curves, merge_seeds
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from dropbench.harness.analysis import analysis_of
from dropbench.harness.trials.task import spec_of

_SITE = re.compile(r"^  (?P<site>\S+)\s+(?P<kind>\S+)\s+layer (?P<layer>\d+)/\d+ .*\bratio (?P<ratio>[\d.]+)")


@dataclass(frozen=True)
class Training:
    """The training of the plotted trials.

    Attributes:
        trials: ids by row and column, the same number of seeds per cell.
        metrics: name of the dev curve of each column.
        curves: curves of each trial that has any.
    """

    trials: Mapping[tuple[str, str], list[str]]
    metrics: Mapping[str, str]
    curves: Mapping[str, Points]


def load_training(view: View, store: Store, runs: Path) -> Training:
    """Return the curves of as many trials as a page draws."""
    rows = view.rows[: Limits.rows]
    cells = [cell for cell in view.cells.values() if cell.row in rows and cell.seeds]
    trials = _plotted_trials(cells)
    metrics = {cell.column: f"dev/{_task_metric(cell)}" for cell in cells}
    ids = [id for cell_ids in trials.values() for id in cell_ids]
    return Training(trials, metrics, load_curves(store, runs, ids, ["train/loss", *set(metrics.values())]))


def learning_curves(view: View, training: Training) -> Group | None:
    """Return the dev metric and the training loss by step, one chart of each per column; None without curves."""
    trials, metrics, curves = training.trials, training.metrics, training.curves
    if not curves:
        return None
    rows = view.rows[: Limits.rows]
    max_points = points_per_curve(2 * len(trials))
    legend = labels(rows)
    header = ("column", "row", "seeds", "best dev", "at step", "last training loss")
    group = Group("curves", "Learning curves", header=header)
    group.lead.append("Lines: mean over seeds; bands: from the lowest to the highest seed.")
    total = sum(len(cell.seeds) for cell in view.cells.values())
    if (drawn := sum(map(len, trials.values()))) < total:
        group.lead.append(f"Drawn from {drawn:,} of {total:,} trials, the first seeds of each cell.")
    group.note_limit(2 * len(view.columns), "plots")
    plotted: set[int] = set()
    for column in view.columns:
        cells = [cell for cell in view.column(column) if (cell.row, column) in trials]
        if not cells:
            continue
        loss: dict[int, SeedBand] = {}
        dev: dict[int, SeedBand] = {}
        for cell in cells:
            for name, bands in (("train/loss", loss), (metrics[column], dev)):
                seeds = [curves.get(id, {}).get(name, []) for id in trials[cell.row, column]]
                if (band := merge_seeds(seeds, max_points)) is not None:
                    bands[rows.index(cell.row)] = band
        for name, bands in ((metrics[column].replace("/", " "), dev), ("training loss", loss)):
            if bands and len(group.charts) < Limits.charts:
                description = f"{name} by step: {column}"
                group.charts.append(charts.band_chart(f"{column}: {name}", description, legend, bands, name))
        plotted |= {*dev, *loss}
        higher = cells[0].metric.higher_is_better is not False
        for row in sorted({*dev, *loss}):
            group.rows.append((column, legend[row], *_curve_texts(dev.get(row), loss.get(row), higher)))
    group.legend = [(row, legend[row]) for row in sorted(plotted)]
    return group


def _plotted_trials(cells: Sequence[CellResult]) -> dict[tuple[str, str], list[str]]:
    """Return the ids of the plotted trials by row and column: the same number of seeds per cell."""
    cells = cells[: Limits.trials]
    max_seeds = max(1, min(Limits.seeds, Limits.trials // max(1, len(cells))))
    trials = {
        (cell.row, cell.column): [
            seed.id for seed in cell.averaged if seed.state not in ("queued", "not run", "skipped")
        ]
        for cell in cells
    }
    return {position: ids[:max_seeds] for position, ids in trials.items() if ids}


def _task_metric(cell: CellResult) -> str:
    """Return the metric of the cell, or the first metric of its task if an analysis measured the cell's."""
    if analysis_of(cell.cell.metric) is None:
        return cell.cell.metric
    return spec_of(cell.cell.request.task).metrics[0].name


def _curve_texts(dev: SeedBand | None, loss: SeedBand | None, higher: bool) -> tuple[str, ...]:
    """Return the number of seeds, the best dev score with its step, and the last training loss."""
    best, step = "", ""
    if dev is not None:
        index = int(dev.mean.argmax() if higher else dev.mean.argmin())
        best, step = f"{dev.mean[index]:.4g}", f"{int(dev.steps[index]):,}"
    seeds = max(band.seeds for band in (dev, loss) if band is not None)
    return str(seeds), best, step, "" if loss is None else f"{loss.mean[-1]:.4g}"


def ratios_by_layer(view: View, runs: Path) -> Group | None:
    """Return the drop ratio of each site as logged by the runs; None if it is the same in all layers."""
    if all(cell.schedule == "constant" for cell in view.cells.values()):
        return None
    group = Group("layers", "Drop ratio by layer", header=("model", "row", "site", "kind", "layer", "ratio"))
    panels: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    done: set[tuple[str, str]] = set()
    for cell in list(view.cells.values())[: Limits.trials]:
        model = cell.cell.request.model
        if (model, cell.row) in done or cell.cell.request.regularizer == "none":
            continue
        for site in next((sites for seed in cell.seeds[:3] if (sites := _sites(runs / seed.id))), []):
            done.add((model, cell.row))
            panels.setdefault((model, site["kind"]), {}).setdefault(cell.row, []).append(site)
    if not panels:
        return None
    rows, legend = list(view.rows), labels(view.rows)
    plotted = sorted({rows.index(row) for panel in panels.values() for row in panel})
    group.lead.append("As logged by the runs.")
    group.legend = [(row, legend[row]) for row in plotted]
    for (model, kind), panel in list(panels.items())[: Limits.charts]:
        drawn = [(rows.index(row), site) for row, sites in panel.items() for site in sites]
        points = [{"r": row, "x": site["layer"], "y": site["ratio"], "t": cut(site["site"], 80)} for row, site in drawn]
        description = f"drop ratio by layer: {model}, {kind}"
        group.charts.append(charts.layer_chart(f"{model}, {kind}", description, legend, points))
        group.rows += [
            (model, legend[row], site["site"], kind, str(site["layer"]), f"{site['ratio']:.3f}") for row, site in drawn
        ]
    return group


def _sites(directory: Path) -> list[Mapping[str, Any]]:
    """Return the sites of a run with their ratios; [] if its environment file is missing or damaged."""
    matches = [_SITE.match(line) for line in text_list(load_environment(directory), "sites")]
    return [
        {**match.groupdict(), "layer": int(match["layer"]), "ratio": float(match["ratio"])}
        for match in matches
        if match
    ]
