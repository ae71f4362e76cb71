"""The figure that a suite stands for, drawn of its table and of what the analyses kept in the run directories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from db.report.distributions import arrays_of, distributions
from db.report.view import Outcome, View
from harness.analysis import analysis_of
from harness.analysis.attention_figure import SCALE, draw_between, draw_over
from harness.analysis.figures import png
from harness.errors import InputError

COLOURS = ("#666666", "#9ecae1", "#08519c", "#fdae6b", "#d94801", "#74c476", "#006d2c", "#bcbddc", "#54278f")
MARKERS = "osD^vP*Xh"
AXES = {"sparsity": ("largest attention weight × sentence length", "share of the weights")}
"""Of histograms: what their axes show, where that is not a value a sample."""


def figure(view: View, runs: Path) -> bytes:
    """The figure as the content of a PNG file.

    Args:
        view: the suite's table.
        runs: the root of the run directories.

    Raises:
        InputError: the suite is a table, or no trial has what would be drawn.
    """
    drawing = view.suite.figure
    if drawing is None:
        raise InputError(f"suite {view.suite.name} is a table, no figure: expected a --format other than png")
    made = {"curves": _curves, "histograms": _histograms, "maps": _maps}[drawing.kind](view, runs)
    made.suptitle(f"{view.suite.title}\n{_subtitle(view)}", fontsize=10)
    return png(made)


def _subtitle(view: View) -> str:
    data = list(dict.fromkeys(outcome.cell.request.data for outcome in view.cells.values()))
    counts = sorted({outcome.n for outcome in view.cells.values() if outcome.n})
    seeds = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
    return f"{', '.join(data)}; preset {view.preset}; seeds: {seeds}"


def _panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(columns, count)
    rows = -(-count // columns)
    made = Figure(figsize=(width * columns, height * rows + 0.7), layout="constrained")
    every = list(made.subplots(rows, columns, squeeze=False).flat)
    for axes in every[count:]:
        axes.remove()
    for axes in every[:count]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    return made, every[:count]


def _curves(view: View, runs: Path) -> Figure:
    """A panel a model and data set; ours with the deviation over seeds, published values as hollow marks."""
    assert view.suite.figure is not None
    over = view.suite.figure.over
    panels: dict[tuple[str, str], dict[str, list[Outcome]]] = {}
    for outcome in view.cells.values():
        request = outcome.cell.request
        panels.setdefault((request.model, request.data), {}).setdefault(outcome.row, []).append(outcome)
    if not any(outcome.mean is not None for outcome in view.cells.values()):
        raise _nothing(view)
    columns = len({data for _, data in panels})
    made, every = _panels(len(panels), max(2, columns), 4.2, 3.0)
    for axes, ((model, data), rows) in zip(every, panels.items(), strict=True):
        for number, (row, outcomes) in enumerate(rows.items()):
            colour, marker = COLOURS[2 + 2 * number % 7], MARKERS[number % len(MARKERS)]
            ours = sorted((_x(one, over), one.mean, one.std or 0.0) for one in outcomes if one.mean is not None)
            if ours:
                x, mean, std = (np.array(values) for values in zip(*ours, strict=True))
                axes.errorbar(x, mean, std, color=colour, marker=marker, markersize=5, capsize=3, label=row)
            told = [(_x(one, over), one.published) for one in outcomes if one.published is not None]
            for place, (x_told, value) in enumerate(told):
                label = f"{row}, published" if not place else None
                axes.plot(x_told, value, marker, color=colour, markersize=9, fillstyle="none", label=label)
        metric = next(iter(rows.values()))[0].metric
        axes.set_title(f"{model}, {data}", fontsize=9)
        axes.set_xlabel("drop ratio" if over == "ratio" else over, fontsize=9)
        axes.set_ylabel(metric.name + (" (%)" if metric.unit == "%" else ""), fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    return made


def _x(outcome: Outcome, over: str) -> float:
    request = outcome.cell.request
    return 0.0 if request.regularizer == "none" else float(outcome.regularizer[over])


def _histograms(view: View, runs: Path) -> Figure:
    """A panel a column; in it an outline a row, of the values of all its seeds."""
    drawn = [(column, found) for column in view.columns if (found := distributions(view.column(column), runs))]
    if not drawn:
        raise _nothing(view)
    made, every = _panels(len(drawn), 2, 5.4, 3.6)
    for axes, (column, found) in zip(every, drawn, strict=True):
        highest, headroom = 0.0, 1.15 + 0.09 * len(found)  # the legend stands above the outlines
        for number, one in enumerate(found):
            highest = max(highest, one.shares.max())
            colour = COLOURS[number % len(COLOURS)]
            axes.stairs(one.shares, one.edges, color=colour, linewidth=1.6, label=f"{one.row}: {one.mean:.3f}")
            axes.axvline(one.mean, ymax=1 / headroom, color=colour, linewidth=0.8, linestyle=":")
        kind = analysis_of(view.column(column)[0].cell.metric)
        what = AXES.get(str(kind), (f"{kind}, by sample", "share of the samples"))
        axes.set_title(column, fontsize=9)
        axes.set_xlabel(what[0], fontsize=9)
        axes.set_ylabel(what[1], fontsize=9)
        axes.set_ylim(0, highest * headroom)
        axes.legend(title="mean", title_fontsize=8, fontsize=8, frameon=False, loc="upper left")
    return made


def _maps(view: View, runs: Path) -> Figure:
    """The samples above, and below them a line of maps for each row, of its first seed."""
    rows = []
    for row in view.rows:
        outcome = view.cells[row, view.columns[0]]
        arrays = next(iter(arrays_of(outcome, runs)), None)
        if arrays is not None:
            rows.append((row, arrays))
    if not rows:
        raise _nothing(view)
    first = rows[0][1]
    samples = [first[name] for name in first if name.startswith("shown.")]
    if any(image.dtype.kind != "u" for image in samples):
        raise InputError(f"suite {view.suite.name}: maps are drawn over images: expected a task on images")
    made = Figure(figsize=(1.7 * len(samples) + 2.2, 1.75 * (len(rows) + 1) + 0.8), layout="constrained")
    grid = made.subplots(len(rows) + 1, len(samples), squeeze=False)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    every = [[arrays[f"map.{place}"] for place in range(len(samples))] for _, arrays in rows]
    top = max(1.0, *(float(found.max() * found.size) for line in every for found in line))
    drawn: ScalarMappable | None = None
    for place, image in enumerate(samples):
        grid[0, place].imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        for line, (_, arrays) in enumerate(rows):
            axes, found = grid[line + 1, place], every[line][place]
            if f"places.{place}" in arrays:
                drawn = draw_between(axes, image, arrays[f"places.{place}"], int(arrays["query"]), found, top)
            else:
                drawn = draw_over(axes, image, found, top)
    for axes, label in zip(grid[:, 0], ("sample", *(row for row, _ in rows)), strict=True):
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    assert drawn is not None
    what = "tokens" if "places.0" in first else "patches"
    made.colorbar(drawn, ax=grid, shrink=0.6).set_label(SCALE.format(what), fontsize=9)
    return made


def _nothing(view: View) -> InputError:
    return InputError(f"suite {view.suite.name}: nothing to draw yet: dropbench run {view.suite.name}")
