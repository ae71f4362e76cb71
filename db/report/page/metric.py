"""Charts of the metric over the parameter that varies, or of each column if none does; differences, ranks, budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dropbench.db.queries.blocks import BASELINE
from dropbench.db.report.figures.critical_difference import critical_difference_diagram
from dropbench.db.report.formats.comparison_tables import ranking_table
from dropbench.db.report.formats.layout import column_label
from dropbench.db.report.formats.numbers import delta_text, mean_std
from dropbench.db.report.page.charts import Group, Spec, dot_chart, histogram_chart, labels, parameter_chart, rounded
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.ranking import ranking_of
from dropbench.db.report.view.view import View, baselines, pairs
from dropbench.db.statistics.t_test import MIN_PAIRS
from dropbench.harness.regularizers.spec import spec_label
from dropbench.harness.trials.metric import Metric


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
    group.lead.append(
        _lead("Points and lines: mean over seeds; bands: ± standard deviation; small points: single seeds", view)
    )
    for panel, panel_lines in list(lines_of.items())[: Limits.charts]:
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
    names = labels(view.rows[: Limits.rows])
    group = Group("metric", "The numbers as a plot", header=("column", "row", *_HEADER))
    group.lead.append(_lead("Points: mean over seeds; lines: ± standard deviation; small points: single seeds", view))
    for column, cells in _columns(view, group):
        cells = [(index, cell) for index, cell in cells if cell.mean is not None or cell.published is not None]
        if not cells:
            continue
        metric, caption = cells[0][1].metric, column_label(column, [cell for _, cell in cells])
        points = [_point(cell, index) for index, cell in cells]
        chart = dot_chart(caption, f"{metric.name} by row: {caption}", names, points, _with_unit(metric))
        group.charts.append(chart)
        group.rows += [(caption, names[index], *_texts(cell)) for index, cell in cells]
    return group


def _columns(view: View, group: Group) -> Iterator[tuple[str, list[tuple[int, CellResult]]]]:
    """Yield the columns that are drawn with their cells, by index of the row; note those that are not."""
    if len(view.rows) > Limits.rows:
        group.lead.append(f"The first {Limits.rows} of {len(view.rows)} rows.")
    group.note_limit(len(view.columns), "columns")
    rows = view.rows[: Limits.rows]
    for column in view.columns[: Limits.charts]:
        yield (
            column,
            [(index, view.cells[row, column]) for index, row in enumerate(rows) if (row, column) in view.cells],
        )


def differences_chart(view: View) -> Group | None:
    """Return a forest plot per column: differences from the baseline with 95 % intervals; None without differences."""
    names, baseline_of = labels(view.rows[: Limits.rows]), baselines(view)
    group = Group("delta", "Differences from the baseline")
    group.header = ("column", "row", "Δ base [95 % interval]", "pairs", "p-value", "after Holm")
    group.lead.append(
        "Points: mean difference of the seeds that both have; lines: 95 % confidence interval (paired t-test); small"
        " points: differences of single seeds. A line that crosses 0 shows no clear difference."
    )
    for column, cells in _columns(view, group):
        cells = [(index, cell) for index, cell in cells if cell.delta is not None]
        if not cells:
            continue
        metric, caption = cells[0][1].metric, column_label(column, view.column(column))
        points = []
        for index, cell in cells:
            p_value = "" if cell.p_value is None else f"{cell.p_value:.3g}"
            texts = delta_text(cell), str(cell.paired), p_value
            point: Spec = {"r": index, "y": rounded(cell.delta or 0.0), **dict(zip("mnq", texts, strict=True))}
            if cell.interval is not None:
                point |= {"l": rounded(cell.interval[0]), "h": rounded(cell.interval[1])}
            points.append(point | _single([ours - base for ours, base in pairs(cell, baseline_of[cell.row, column])]))
            p_holm = "" if cell.p_holm is None else f"{cell.p_holm:.3g}"
            group.rows.append((caption, names[index], *texts, p_holm))
        better = f" {metric.arrow}" if metric.arrow else ""
        chart = dot_chart(
            f"{caption}: Δ {metric.name}{better}", f"difference from the baseline by row: {caption}", names, points,
            f"Δ {_with_unit(metric)}", ("pairs", "p-value"), zero=True,
        )  # fmt: skip
        group.charts.append(chart)
    return group if group.charts else None


def ranks_chart(view: View) -> Group | None:
    """Return the ranking of the rows over the columns; None for too few of either."""
    ranking = ranking_of(view)
    if ranking.blocks < MIN_PAIRS or len(ranking.rows) < 2:
        return None
    table = ranking_table(ranking)
    group = Group("ranks", "Ranks over the columns", header=tuple(table.header), rows=[*map(tuple, table.texts)])
    bases = dict.fromkeys(cell.row for cell in view.cells.values() if cell.cell.baseline)
    if {*bases} - {BASELINE}:
        group.lead.append(f"{BASELINE}: the baseline, {', '.join(bases)}.")
    group.lead += [f"{line}." for line in table.below]
    if ranking.critical_difference is not None:
        description = "mean ranks on an axis, with a bar over each group of rows that do not differ"
        group.add_picture("Critical-difference diagram", description, critical_difference_diagram(ranking, "png"))
    thresholds, *shares = ranking.profiles.values() if ranking.profiles else ([],)
    names = labels([*ranking.profiles][1 : Limits.rows + 1])
    points = [
        {"r": row, "x": rounded(x), "y": rounded(y)}
        for row, values in enumerate(shares[: Limits.rows])
        for x, y in zip(thresholds, values, strict=True)
    ]
    if points:
        group.legend = [*enumerate(names)]
        caption = "Performance profile: share of the runs above an improvement"
        group.charts.append(histogram_chart(caption, f"{caption}, by row", names, points, f"over {BASELINE} (%)"))
    return group


def budget_chart(view: View) -> Group | None:
    """Return the expected dev score over the number of candidates, per column; None without complete sweeps."""
    names = labels(view.rows[: Limits.rows])
    group = Group("budget", "The dev score over the tuning budget", legend=[*enumerate(names)])
    group.lead.append(
        "Expected dev score of the best of k candidates, over all subsets of k of those that were trained (Dodge et al."
        " 2019, Tang et al. 2020). Compare rows at the same k."
    )
    group.header = ("column", "row", "k", "expected dev score")
    for column, cells in _columns(view, group):
        points: list[Spec] = []
        for index, cell in cells:
            for k, value in enumerate(cell.expected_dev or (), 1):
                points.append({"r": index, "x": k, "y": rounded(value)})
                group.rows.append((column_label(column, [cell]), names[index], str(k), f"{value:.4g}"))
        if points:
            caption = column_label(column, [cell for _, cell in cells])
            description = f"expected dev score over the number of candidates: {caption}"
            group.charts.append(parameter_chart(caption, description, names, points, "candidates", "dev score"))
    return group if group.charts else None


def _single(values: Sequence[float | None]) -> Spec:
    """Return the values of single seeds as part of a point; nothing for fewer than two, which are the mean."""
    numbers = [rounded(value) for value in values if value is not None][: Limits.seeds]
    return {"s": numbers} if len(numbers) > 1 else {}


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
        point |= _single([seed.value for seed in result.averaged])
    if result.published is not None:
        point |= {"p": rounded(result.published), "q": published}
    return point


def _with_unit(metric: Metric) -> str:
    return f"{metric.name} ({metric.unit})" if metric.unit not in ("", "count") else metric.name
