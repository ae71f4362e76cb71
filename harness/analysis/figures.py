"""Figures of analyses. Small multiples share their axis, so that layers can be compared at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

Array = NDArray[np.float64]

FILL, LINE = "#9ecae1", "#08519c"
DPI = 150
MAX_COLUMNS, ROWS_PER_COLUMN = 3, 6
"""Layout of small multiples: a further column starts after this many rows, up to the maximum number of columns."""


def png(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG file."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def histograms(title: str, axis: str, values: Mapping[str, Array]) -> Figure:
    """Draw one histogram of values (N,) per site, with their mean, all with the same bins.

    NaN and infinite values are ignored. `axis` is the label of the values.
    """
    finite = {label: array[np.isfinite(array)] for label, array in values.items()}
    pooled = np.concatenate(list(finite.values()))
    low, high = (float(pooled.min()), float(pooled.max())) if pooled.size else (0.0, 1.0)
    margin = 0.03 * (high - low) if high - low > 1e-9 else 0.5
    low, high = low - margin, high + margin
    edges = np.linspace(low, high, 41)
    counted = {label: (edges, np.histogram(array, edges)[0].astype(float)) for label, array in finite.items()}
    means = {label: float(array.mean()) if array.size else float("nan") for label, array in finite.items()}
    return _multiples(title, axis, "samples", counted, means)


def counts_by_site(
    title: str, axis: str, counted: Mapping[str, tuple[Array, Array]], means: Mapping[str, float]
) -> Figure:
    """Draw one histogram per site from its edges (K + 1,) and counts (K,)."""
    # At least 99.9 % of the counts of every histogram are below `end`.
    end = max(
        float(edges[1:][np.searchsorted(counts.cumsum(), 0.999 * counts.sum())]) if counts.sum() else float(edges[1])
        for edges, counts in counted.values()
    )
    coarse = {label: _coarsen(edges, counts, end) for label, (edges, counts) in counted.items()}
    return _multiples(title, axis, "queries of all heads", coarse, means)


def lines(title: str, axis: tuple[str, str], x: Sequence[float], mean: Array, spread: Array) -> Figure:
    """Draw a curve of `mean` (K,) over `x` (K,), annotated with its values.

    `axis` has the labels of x and y; `spread` (K,) is half the length of the error bars.
    """
    figure, axes = _figure(6.4, 3.9)
    axes.errorbar(x, mean, yerr=spread, color=LINE, marker="o", capsize=3, clip_on=False)
    for point in zip(x, mean, strict=True):
        axes.annotate(f"{point[1]:.1f}", point, xytext=(6, 6), textcoords="offset points", color=LINE, fontsize=9)
    axes.set_xlabel(axis[0])
    axes.set_ylabel(axis[1])
    axes.set_xticks(list(x))
    axes.margins(x=0.06, y=0.15)
    axes.grid(axis="y", alpha=0.3)
    axes.set_title(title, fontsize=10)
    return figure


def bars(title: str, axis: str, values: Mapping[str, float], marks: Mapping[str, float], mark: str) -> Figure:
    """Draw one bar per site from 0 to 1, annotated with its value; `marks` are reference values of some sites.

    `axis` is the label of the values, and `mark` that of the reference values.
    """
    figure, axes = _figure(6.4, 1.5 + 0.32 * len(values))
    rows = np.arange(len(values))
    axes.barh(rows, list(values.values()), color=FILL, height=0.7)
    for row, (label, value) in enumerate(values.items()):
        axes.annotate(f"{value:.3f}", (1.0, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
        if label in marks:
            axes.plot([marks[label]] * 2, [row - 0.42, row + 0.42], color=LINE, linewidth=2)
    if marks:
        axes.plot([], [], color=LINE, linewidth=2, label=mark)
        figure.legend(loc="outside lower right", frameon=False, fontsize=9)
    axes.set_yticks(rows, list(values))
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(axis)
    axes.set_title(title, fontsize=10)
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _multiples(
    title: str, axis: str, unit: str, counted: Mapping[str, tuple[Array, Array]], means: Mapping[str, float]
) -> Figure:
    columns = min(MAX_COLUMNS, -(-len(counted) // ROWS_PER_COLUMN))
    rows = -(-len(counted) // columns)
    figure = Figure(figsize=(max(6.4, 4.2 * columns), 1.2 + 1.15 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    # Layers run down the columns. Unused axes at the end are removed.
    all_axes = [axes for column in range(columns) for axes in grid[:, column]]
    for axes in all_axes[len(counted) :]:
        axes.remove()
    for axes, (label, (edges, counts)) in zip(all_axes, counted.items(), strict=False):
        axes.stairs(counts, edges, fill=True, color=FILL)
        axes.axvline(means[label], color=LINE, linewidth=1.5)
        axes.set_title(f"{label}    mean {means[label]:.3f}", fontsize=9, loc="left", pad=3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True, min_n_ticks=1))
        axes.tick_params(labelsize=8)
        axes.set_ylim(bottom=0)
        axes.set_xlim(edges[0], edges[-1])
    for column in range(columns):
        last = all_axes[min((column + 1) * rows, len(counted)) - 1]
        last.tick_params(labelbottom=True)
    figure.suptitle(title, fontsize=10)
    figure.supxlabel(axis, fontsize=9)
    figure.supylabel(unit, fontsize=9)
    return figure


def _coarsen(edges: Array, counts: Array, end: float) -> tuple[Array, Array]:
    """Merge bins to about fifty from 0 to `end`; the last one also counts larger values."""
    step = max(1, round(end / edges[1] / 50))
    bins = -(-round(end / edges[1]) // step)
    padded = np.pad(counts, (0, max(0, bins * step - len(counts))))
    coarse = padded[: bins * step].reshape(bins, step).sum(axis=1)
    coarse[-1] += padded[bins * step :].sum()
    return np.arange(bins + 1) * step * edges[1], coarse
