"""The metric over the parameter that varies; where none does, each column as a plot of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from db.report.layout import column_label, spread
from db.report.page import charts
from db.report.page.charts import MOST_CHARTS, MOST_ROWS, Chart, Group, labels, rounded
from db.report.view import Outcome, View


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
    group.lead.append(_lead("Points and lines: mean over seeds; bands: ± standard deviation", view))
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


def _lead(told: str, view: View) -> str:
    published = any(outcome.published is not None for outcome in view.cells.values())
    return f"{told}; hollow diamonds: published." if published else f"{told}."


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
    group.lead.append(_lead("Points: mean over seeds; lines: ± standard deviation", view))
    if len(view.rows) > len(rows):
        group.lead.append(f"The first {len(rows)} of {len(view.rows)} rows.")
    group.first_of(len(view.columns), "columns")
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
