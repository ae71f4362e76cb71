"""The figure of a suite, drawn from its table and from the arrays of analyses in the run directories."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dropbench.db.report.figures.distributions import arrays_of, distributions
from dropbench.db.report.figures.maps import draw_maps, scale_end
from dropbench.db.report.formats.layout import column_label
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.view import View
from dropbench.harness.analysis import analysis_of
from dropbench.harness.analysis.figures import png
from dropbench.harness.errors import InputError

COLORS = ("#666666", "#9ecae1", "#08519c", "#fdae6b", "#d94801", "#74c476", "#006d2c", "#bcbddc", "#54278f")
MARKERS = "osD^vP*Xh"
AXES = {"sparsity": ("largest attention weight × sentence length", "share of the weights")}
"""Axis labels of histograms that do not count one value per sample."""


def figure(view: View, runs: Path) -> bytes:
    """Return the figure as PNG from the run directories in `runs`; raise InputError for a table, or without data."""
    spec = view.suite.figure
    if spec is None:
        raise InputError(f"suite {view.suite.name} is a table, no figure: expected a --format other than png")
    drawn = {"curves": _curves, "histograms": _histograms, "maps": _maps}[spec.kind](view, runs)
    drawn.suptitle(f"{view.suite.title}\n{_subtitle(view)}", fontsize=10)
    return png(drawn)


def _subtitle(view: View) -> str:
    data = list(dict.fromkeys(result.cell.request.data for result in view.cells.values()))
    counts = sorted({result.n for result in view.cells.values() if result.n})
    seeds = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
    return f"{', '.join(data)}; preset {view.preset}; seeds: {seeds}"


def _panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(columns, count)
    rows = -(-count // columns)
    drawn = Figure(figsize=(width * columns, height * rows + 0.7), layout="constrained")
    panels = list(drawn.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.remove()
    for axes in panels[:count]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_fontsize(9)
        axes.yaxis.label.set_fontsize(9)
    return drawn, panels[:count]


def _curves(view: View, runs: Path) -> Figure:
    """Draw one panel per model and data set: our means with their std, published values as hollow markers."""
    assert view.suite.figure is not None
    over = view.suite.figure.over
    groups: dict[tuple[str, str], dict[str, list[CellResult]]] = {}
    for result in view.cells.values():
        request = result.cell.request
        groups.setdefault((request.model, request.data), {}).setdefault(result.row, []).append(result)
    if not any(result.mean is not None for result in view.cells.values()):
        raise _no_data(view)
    columns = len({data for _, data in groups})
    drawn, panels = _panels(len(groups), max(2, columns), 4.2, 3.0)
    for axes, ((model, data), rows) in zip(panels, groups.items(), strict=True):
        for number, (row, results) in enumerate(rows.items()):
            color, marker = COLORS[2 + 2 * number % 7], MARKERS[number % len(MARKERS)]
            ours = sorted((_x(cell, over), cell.mean, cell.std or 0.0) for cell in results if cell.mean is not None)
            if ours:
                x, mean, std = (np.array(values) for values in zip(*ours, strict=True))
                axes.errorbar(x, mean, std, color=color, marker=marker, markersize=5, capsize=3, label=row)
            published = [(_x(cell, over), cell.published) for cell in results if cell.published is not None]
            for index, (ratio, value) in enumerate(published):
                label = f"{row}, published" if not index else None
                axes.plot(ratio, value, marker, color=color, markersize=9, fillstyle="none", label=label)
        metric = next(iter(rows.values()))[0].metric
        y_label = metric.name + (" (%)" if metric.unit == "%" else "")
        results = [result for row_results in rows.values() for result in row_results]
        axes.set_title(column_label(f"{model}, {data}", results), fontsize=9)
        axes.set(xlabel="drop ratio" if over == "ratio" else over, ylabel=y_label)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    return drawn


def _x(result: CellResult, over: str) -> float:
    value = 0.0 if result.cell.request.regularizer == "none" else result.regularizer.get(over)
    if not isinstance(value, int | float):
        raise InputError(f"no figure over {over}: it is no number of row '{result.row}': leave that row out")
    return float(value)


def _histograms(view: View, runs: Path) -> Figure:
    """Draw one panel per column, with one outline per row of the values of all its seeds."""
    columns = []
    for column in view.columns:
        results = view.column(column)
        seeds_of = {result.row: list(arrays_of(result, runs)) for result in results}
        if rows := distributions(seeds_of, results[0].cell.metric.partition("/")[2]):
            columns.append((column, rows))
    if not columns:
        raise _no_data(view)
    drawn, panels = _panels(len(columns), 2, 5.4, 3.6)
    for axes, (column, rows) in zip(panels, columns, strict=True):
        highest, headroom = 0.0, 1.15 + 0.09 * len(rows)  # space for the legend above the outlines
        for number, row in enumerate(rows):
            highest = max(highest, row.shares.max())
            color = COLORS[number % len(COLORS)]
            axes.stairs(row.shares, row.edges, color=color, linewidth=1.6, label=f"{row.row}: {row.mean:.3f}")
            axes.axvline(row.mean, ymax=1 / headroom, color=color, linewidth=0.8, linestyle=":")
        kind = analysis_of(view.column(column)[0].cell.metric)
        x_label, y_label = AXES.get(str(kind), (f"{kind}, by sample", "share of the samples"))
        axes.set_title(column, fontsize=9)
        axes.set(xlabel=x_label, ylabel=y_label, ylim=(0, highest * headroom))
        axes.legend(title="mean", title_fontsize=8, fontsize=8, frameon=False, loc="upper left")
    return drawn


def _maps(view: View, runs: Path) -> Figure:
    """Draw the maps of the first column, from the first seed of each row."""
    column = view.columns[0]
    rows = [(row, arrays) for row in view.rows for arrays in islice(arrays_of(view.cells[row, column], runs), 1)]
    if not rows:
        raise _no_data(view)
    return draw_maps(rows, max(1.0, scale_end(rows)))


def _no_data(view: View) -> InputError:
    return InputError(f"suite {view.suite.name}: nothing to draw yet: run `dropbench run {view.suite.name}`")
