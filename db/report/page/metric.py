"""Charts of the metric over the parameter that varies, or of each column if none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from db.report.formats.layout import column_label, mean_std
from db.report.page.charts import MAX_CHARTS, MAX_ROWS, Group, dot_chart, labels, parameter_chart, rounded
from db.report.view.view import CellResult, View
from harness.regularizers.spec import spec_label
from harness.trials.metric import Metric


def metric_charts(view: View) -> Group | None:
    """Return the charts of the metric; None if there are no results."""
    if not any(result.mean is not None for result in view.cells.values()):
        return None
    return _over_parameter(view) or _by_column(view)


def _over_parameter(view: View) -> Group | None:
    figure = view.suite.figure
    preferred = [figure.over] if figure is not None and figure.kind == "curves" else []
    panels: dict[tuple[str, ...], list[CellResult]] = {}
    for result in view.cells.values():
        request = result.cell.request
        panels.setdefault((request.model, request.data, result.metric.name), []).append(result)
    over = _varying_parameter([*panels.values()], preferred)
    if over is None:
        return None
    lines_of = {panel: _lines(results, over) for panel, results in panels.items()}
    lines = list(dict.fromkeys(line for panel_lines in lines_of.values() for line in panel_lines))
    names = labels(_line_labels(lines))
    x = "drop ratio" if over == "ratio" else over
    group = Group("over", f"The metric over the {x}", legend=[*enumerate(names)], header=("plot", "row", x, *_HEADER))
    group.lead.append(_lead("Points and lines: mean over seeds; bands: ± standard deviation", view))
    for panel, panel_lines in list(lines_of.items())[:MAX_CHARTS]:
        caption = ", ".join(part for part, *others in zip(panel, *lines_of, strict=True) if len(set(others)) > 1)
        results = [result for line_results in panel_lines.values() for result in line_results]
        caption = column_label(caption or f"{panel[0]}, {panel[1]}", results)
        points = []
        for line, results in panel_lines.items():
            row = lines.index(line)
            for result in sorted(results, key=lambda result: _value(result, over) or 0.0):
                value = _value(result, over)
                point = _point(result, row)
                points.append(point if value is None else {**point, "x": value})
                group.rows.append((caption, names[row], "" if value is None else f"{value:g}", *_texts(result)))
        metric = next(iter(panel_lines.values()))[0].metric
        description = f"{metric.name} over the {x}: {caption}"
        group.charts.append(parameter_chart(caption, description, names, points, x, _with_unit(metric)))
    return group


def _lead(text: str, view: View) -> str:
    published = any(result.published is not None for result in view.cells.values())
    return f"{text}; hollow diamonds: published." if published else f"{text}."


def _varying_parameter(panels: Sequence[Sequence[CellResult]], preferred: Sequence[str]) -> str | None:
    """Return the parameter with several values among otherwise equal configurations; ratio and window come first."""
    keys = {key: None for panel in panels for result in panel for key in result.regularizer}
    for key in [*preferred, *sorted(keys, key=lambda key: (key != "ratio", key != "window"))]:
        for panel in panels:
            for results in _lines(panel, key).values():
                if len({_value(result, key) for result in results} - {None}) > 1:
                    return key
    return None


def _value(result: CellResult, key: str) -> float | None:
    value = result.regularizer.get(key) if result.cell.request.regularizer != "none" else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _lines(results: Sequence[CellResult], over: str) -> dict[tuple[str, ...], list[CellResult]]:
    """Return the results by configuration without the parameter `over`: those of one are connected by a line."""
    lines: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        request = result.cell.request
        rest = {key: value for key, value in result.regularizer.items() if key != over}
        rest |= {"schedule": result.schedule, "align": request.align, **request.overrides}
        values = [f"{key}={value}" for key, value in sorted(rest.items())] if request.regularizer != "none" else []
        lines.setdefault((request.regularizer, *values), []).append(result)
    return lines


def _line_labels(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the regularizer of each line, with the values in which lines of the same regularizer differ."""
    texts = []
    for line in lines:
        same = [other for other in lines if other[0] == line[0]]
        differing = [part for part in line[1:] if not all(part in other for other in same)]
        texts.append(", ".join([spec_label(line[0], {}), *differing]))
    return texts


def _by_column(view: View) -> Group:
    rows = view.rows[:MAX_ROWS]
    names = labels(rows)
    group = Group("metric", "The numbers as a plot", header=("column", "row", *_HEADER))
    group.lead.append(_lead("Points: mean over seeds; lines: ± standard deviation", view))
    if len(view.rows) > len(rows):
        group.lead.append(f"The first {len(rows)} of {len(view.rows)} rows.")
    group.note_limit(len(view.columns), "columns")
    for column in view.columns[:MAX_CHARTS]:
        cells = [(index, view.cells[row, column]) for index, row in enumerate(rows) if (row, column) in view.cells]
        cells = [(index, cell) for index, cell in cells if cell.mean is not None or cell.published is not None]
        if not cells:
            continue
        metric, caption = cells[0][1].metric, column_label(column, [cell for _, cell in cells])
        points = [_point(cell, index) for index, cell in cells]
        chart = dot_chart(caption, f"{metric.name} by row: {caption}", names, points, _with_unit(metric))
        group.charts.append(chart)
        group.rows += [(caption, names[index], *_texts(cell)) for index, cell in cells]
    return group


_HEADER = ("mean ± std", "seeds", "published")


def _texts(result: CellResult) -> tuple[str, str, str]:
    published = mean_std(result.published, result.published_std, result.metric)
    return mean_std(result.mean, result.std, result.metric), f"{result.n}/{len(result.seeds)}", published


def _point(result: CellResult, row: int) -> dict[str, Any]:
    mean, _, published = _texts(result)
    point: dict[str, Any] = {"r": row, "n": result.n, "m": mean or "none yet"}
    if result.mean is not None:
        point["y"] = rounded(result.mean)
        if result.std is not None:
            point |= {"l": rounded(result.mean - result.std), "h": rounded(result.mean + result.std)}
    if result.published is not None:
        point |= {"p": rounded(result.published), "q": published}
    return point


def _with_unit(metric: Metric) -> str:
    return f"{metric.name} ({metric.unit})" if metric.unit not in ("", "count") else metric.name
