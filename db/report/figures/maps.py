"""Attention maps of several models on the same samples, on one color scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dropbench.harness.analysis.pictures.attention_figure import (
    MAX_WORDS,
    SCALE,
    WORD_SCALE,
    draw_between,
    draw_over,
    draw_words,
    short,
)
from dropbench.harness.cli.plain_text import plain

Array = NDArray[Any]
Arrays = Mapping[str, Array]
"""Arrays of an analysis: `map.0`, … and `shown.0`, …; lines from a token also have `places.0`, … and `query`."""

MAX_LABEL = 40


def strengths(arrays: Arrays, max_samples: int | None = None) -> list[Array]:
    """Return the maps of the samples: weights between words, others relative to uniform attention (1)."""
    names = [name for name in arrays if name.startswith("map.")]
    maps = [arrays[name].astype(float) for name in names[:max_samples]]
    return [weights if _is_text(arrays) else weights * weights.size for weights in maps]


def scale_end(rows: Sequence[tuple[str, Arrays]], max_samples: int | None = None) -> float:
    """Return the end of a color scale for the maps of all rows; it starts at 0."""
    return max(float(weights.max()) for _, arrays in rows for weights in strengths(arrays, max_samples))


def _is_text(arrays: Arrays) -> bool:
    return bool(arrays["shown.0"].dtype.kind == "U")


def draw_maps(rows: Sequence[tuple[str, Arrays]], top: float, max_samples: int | None = None) -> Figure:
    """Draw one line of maps per row: over the images, which are in the first line, or between the words of texts.

    Args:
        rows: label and arrays of each row, with the same samples.
        top: end of the color scale.
        max_samples: the number of samples that are drawn; None for all.
    """
    first = rows[0][1]
    count, texts = len(strengths(first, max_samples)), _is_text(first)
    lines = len(rows) + (not texts)
    words = max(min(MAX_WORDS, len(first[f"shown.{sample}"])) for sample in range(count))
    side = 1.2 + 0.2 * words if texts else 1.75
    figure = Figure(figsize=(side * count + 1.4, (side + 0.25) * lines + 0.6), layout="constrained")
    grid = figure.subplots(lines, count, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    scale: ScalarMappable | None = None
    for line, (_, arrays) in enumerate(rows, lines - len(rows)):
        for sample in range(count):
            scale = _draw_map(grid[line, sample], arrays, sample, top)
    labels = [label for label, _ in rows]
    if not texts:
        labels.insert(0, "sample")
        for sample in range(count):
            image = first[f"shown.{sample}"].squeeze()
            grid[0, sample].imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_title(short(plain(label), MAX_LABEL), loc="left", fontsize=9, pad=4)
    assert scale is not None
    title = WORD_SCALE if texts else SCALE.format("tokens" if "places.0" in first else "patches")
    figure.colorbar(scale, ax=grid, shrink=0.6).set_label(title, fontsize=9)
    return figure


def _draw_map(axes: Axes, arrays: Arrays, sample: int, top: float) -> ScalarMappable:
    weights, shown = arrays[f"map.{sample}"], arrays[f"shown.{sample}"]
    if shown.dtype.kind == "U":
        return draw_words(axes, [short(plain(word)) for word in shown[:MAX_WORDS]], weights, top)
    if f"places.{sample}" in arrays:
        return draw_between(axes, shown, arrays[f"places.{sample}"], int(arrays["query"]), weights, top)
    return draw_over(axes, shown, weights, top)
