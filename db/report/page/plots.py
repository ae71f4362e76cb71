"""What is plotted of a suite: the metric over what varies, how training went, and the ratio of each layer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from db.report.layout import column_label, number, spread
from db.report.page import charts
from db.report.page.bands import Band, band
from db.report.page.charts import Chart, Group, labels, rounded
from db.report.page.records import curves
from db.report.page.templates import cut
from db.report.view import Outcome, View
from db.store import Store
from harness.analysis import analysis_of
from harness.task import TASKS

MOST_CHARTS = 24
MOST_ROWS = 40
MOST_SEEDS = 10
MOST_TRIALS = 300
"""Trials whose curves are read."""
MOST_POINTS = 200
"""Of a curve."""
ALL_POINTS = 16_000
"""Of all curves of a page: about a megabyte."""

_SITE = re.compile(r"^  (?P<site>\S+)\s+(?P<kind>\S+)\s+layer (?P<layer>\d+)/\d+ .*\bratio (?P<ratio>[\d.]+)")


def metric_plots(view: View) -> Group | None:
    """The metric over the parameter that varies; where none does, each column as a line of dots."""
    if not any(outcome.mean is not None for outcome in view.cells.values()):
        return None
    return _over(view) or _dots(view)


def _over(view: View) -> Group | None:
    figure = view.suite.figure
    wanted = [figure.over] if figure is not None and figure.kind == "curves" else []
    panels: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in view.cells.values():
        request = outcome.cell.request
        panels.setdefault((request.model, request.data, outcome.metric.name), []).append(outcome)
    over = _varying([*panels.values()], wanted)
    if over is None:
        return None
    drawn: dict[tuple[str, ...], dict[tuple[str, ...], list[Outcome]]] = {}
    for panel, outcomes in panels.items():
        for outcome in outcomes:
            drawn.setdefault(panel, {}).setdefault(_line(outcome, over), []).append(outcome)
    lines = list(dict.fromkeys(line for found in drawn.values() for line in found))
    names = labels(_line_labels(lines))
    x = "drop ratio" if over == "ratio" else over
    group = Group("over", f"The metric over the {x}", legend=[*enumerate(names)], header=("plot", "row", x, *_HEAD))
    group.lead.append("Lines: mean over seeds; bands: ± standard deviation; hollow diamonds: published.")
    for panel, found in list(drawn.items())[:MOST_CHARTS]:
        caption = ", ".join(part for part, *others in zip(panel, *drawn, strict=True) if len(set(others)) > 1)
        caption = caption or f"{panel[0]}, {panel[1]}"
        points = []
        for line, outcomes in found.items():
            for outcome in sorted(outcomes, key=lambda one: _value(one, over) or 0.0):
                value = _value(outcome, over)
                point = _point(outcome, lines.index(line))
                points.append(point if value is None else {**point, "x": value})
                group.rows.append(
                    (caption, names[lines.index(line)], "" if value is None else f"{value:g}", *_row(outcome))
                )
        metric = next(iter(found.values()))[0].metric
        told = f"{metric.name} over the {x}: {caption}"
        group.charts.append(Chart(caption, told, charts.over(told, names, points, x, _named(metric.name, metric.unit))))
    return group


def _varying(panels: Sequence[Sequence[Outcome]], wanted: Sequence[str]) -> str | None:
    """The parameter with several values among configurations that are otherwise the same; a ratio before others."""
    keys = {key: None for panel in panels for one in panel for key in one.regularizer}
    for key in [*wanted, *sorted(keys, key=lambda key: (key != "ratio", key != "window"))]:
        for panel in panels:
            values: dict[tuple[str, ...], set[float]] = {}
            for outcome in panel:
                value = _value(outcome, key)
                if value is not None:
                    values.setdefault(_line(outcome, key), set()).add(value)
            if any(len(found) > 1 for found in values.values()):
                return key
    return None


def _value(outcome: Outcome, key: str) -> float | None:
    value = outcome.regularizer.get(key) if outcome.cell.request.regularizer != "none" else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _line(outcome: Outcome, over: str) -> tuple[str, ...]:
    request = outcome.cell.request
    if request.regularizer == "none":
        return ("none",)
    rest = {key: value for key, value in outcome.regularizer.items() if key != over}
    rest |= {"schedule": outcome.schedule, "align": request.align, **request.overrides}
    return (request.regularizer, *(f"{key}={value}" for key, value in sorted(rest.items())))


def _line_labels(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """The regularizer, with what the lines of it differ in."""
    told = []
    for line in lines:
        others = [one for one in lines if one[0] == line[0]]
        own = [part for part in line[1:] if not all(part in one for one in others)]
        told.append(", ".join([line[0], *own]))
    return told


def _dots(view: View) -> Group:
    rows = view.rows[:MOST_ROWS]
    names = labels(rows)
    group = Group("metric", "The numbers as a plot", header=("column", "row", *_HEAD))
    group.lead.append("Points: mean over seeds; lines: ± standard deviation; hollow diamonds: published.")
    if len(view.rows) > len(rows):
        group.lead.append(f"The first {len(rows)} of {len(view.rows)} rows.")
    _first_of(group, len(view.columns), "columns")
    for column in view.columns[:MOST_CHARTS]:
        cells = [(place, view.cells[row, column]) for place, row in enumerate(rows) if (row, column) in view.cells]
        cells = [(place, one) for place, one in cells if one.mean is not None or one.published is not None]
        if not cells:
            continue
        metric, caption = cells[0][1].metric, column_label(column, [one for _, one in cells])
        told = f"{metric.name} by row: {caption}"
        points = [_point(one, place) for place, one in cells]
        group.charts.append(Chart(caption, told, charts.dots(told, names, points, _named(metric.name, metric.unit))))
        group.rows += [(caption, names[place], *_row(one)) for place, one in cells]
    return group


_HEAD = ("mean ± std", "seeds", "published")


def _row(outcome: Outcome) -> tuple[str, str, str]:
    return (
        spread(outcome.mean, outcome.std, outcome.metric),
        f"{outcome.n}/{len(outcome.seeds)}",
        spread(outcome.published, outcome.published_std, outcome.metric),
    )


def _point(outcome: Outcome, place: int) -> dict[str, Any]:
    point: dict[str, Any] = {
        "r": place,
        "n": outcome.n,
        "m": spread(outcome.mean, outcome.std, outcome.metric) or "none yet",
    }
    if outcome.mean is not None:
        point["y"] = rounded(outcome.mean)
        if outcome.std is not None:
            point |= {"l": rounded(outcome.mean - outcome.std), "h": rounded(outcome.mean + outcome.std)}
    if outcome.published is not None:
        point |= {
            "p": rounded(outcome.published),
            "q": spread(outcome.published, outcome.published_std, outcome.metric),
        }
    return point


def _named(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit not in ("", "count") else name


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
    _first_of(group, 2 * len(view.columns), "plots")
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
    return TASKS.get(outcome.cell.request.task).metrics[0].name


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
        sites = next((found for seed in outcome.seeds[:3] if (found := _sites(runs / seed.id))), [])
        for site in sites:
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


def _first_of(group: Group, count: int, what: str) -> None:
    if count > MOST_CHARTS:
        group.lead.append(f"The first {MOST_CHARTS} of {count} {what}.")
