"""Figures of attention maps, over images and between words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from dropbench.harness.trials.sample_view import SampleView

Array = NDArray[np.float64]

COLORMAP, ALPHA, CONTRAST = "viridis", 0.75, 0.7
RAY_COLORMAP = "plasma_r"
"""Color map of lines over an image; weak lines are light."""
MAX_WORDS, MAX_CHARS, MAX_COLUMNS = 24, 14, 4
SCALE = "attention weight × {} (1: uniform)"
"""Label of the color scale; the gap is for the name of the keys."""
WORD_SCALE = "attention weight (row: query, column: key)"


def attention_figure(title: str, samples: Sequence[SampleView], maps: Sequence[Array]) -> Figure:
    """Draw samples with their maps: (rows, columns) over the patches of images, (words, words) for texts."""
    return _words(title, samples, maps) if samples[0].words is not None else _images(title, samples, maps)


def _images(title: str, samples: Sequence[SampleView], maps: Sequence[Array]) -> Figure:
    """Draw each image, and below it the image under its map; on the common scale, uniform attention is 1."""
    columns = min(MAX_COLUMNS, len(samples))
    bands = -(-len(samples) // columns)
    figure = Figure(figsize=(2.0 * columns + 1.2, 4.1 * bands + 0.8), layout="constrained")
    grid = figure.subplots(2 * bands, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    top = max(1.0, *(float(weights.max() * weights.size) for weights in maps))
    drawn = None
    for i, (sample, weights) in enumerate(zip(samples, maps, strict=True)):
        band, column = divmod(i, columns)
        image = np.asarray(sample.image)
        extent = (0, image.shape[1], image.shape[0], 0)
        above, below = grid[2 * band, column], grid[2 * band + 1, column]
        above.imshow(image.squeeze(), cmap="gray", extent=extent, vmin=0, vmax=255, interpolation="nearest")
        above.set_title(short(sample.label), fontsize=10)
        drawn = draw_over(below, image, weights, top)
    assert drawn is not None
    figure.colorbar(drawn, ax=grid, shrink=0.6).set_label(SCALE.format("patches"), fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def draw_faint(axes: Axes, image: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Draw an image (H, W, 1 or 3) in light gray, as background for colored overlays, and return its extent."""
    extent = (0, image.shape[1], image.shape[0], 0)
    faint = 255 - (255 - image.mean(axis=2)) * CONTRAST
    axes.imshow(faint, cmap="gray", extent=extent, vmin=0, vmax=255, interpolation="nearest")
    return extent


def draw_over(axes: Axes, image: NDArray[np.uint8], weights: Array, top: float) -> AxesImage:
    """Draw weights (rows, columns) over a faint image (H, W, 1 or 3); colors end at `top`, uniform attention is 1."""
    extent = draw_faint(axes, image)
    return axes.imshow(
        weights * weights.size, cmap=COLORMAP, alpha=ALPHA, extent=extent, vmin=0, vmax=top, interpolation="nearest"
    )


def draw_between(
    axes: Axes, image: NDArray[np.uint8], positions: Array, query: int, weights: Array, top: float
) -> ScalarMappable:
    """Draw the attention weights (T,) of token `query` as lines to all T tokens over a faint image (H, W, 1 or 3).

    `positions` (T, 2) are in pixels, right and down. The color scale ends at `top`; uniform attention is 1 on it.
    """
    draw_faint(axes, image)
    order = np.argsort(weights)  # draw strong lines last
    ends, strength = positions[order], weights[order] * len(weights)
    scale = ScalarMappable(Normalize(0, top), RAY_COLORMAP)
    colors = scale.to_rgba(strength)
    colors[:, 3] = np.clip(strength / top, 0, 1)
    rays = np.stack([np.broadcast_to(positions[query], ends.shape), ends], axis=1)
    axes.add_collection(LineCollection(list(rays), colors=colors, linewidths=0.8))
    axes.scatter(ends[:, 0], ends[:, 1], s=4, c=strength, cmap=RAY_COLORMAP, vmin=0, vmax=top, linewidths=0)
    axes.plot(*positions[query], marker="o", markersize=5, markerfacecolor="white", markeredgecolor="black")
    axes.set_xlim(0, image.shape[1])
    axes.set_ylim(image.shape[0], 0)
    return scale


def _words(title: str, samples: Sequence[SampleView], maps: Sequence[Array]) -> Figure:
    """Draw a heat map per text, with its first words as queries (down) and keys (across), on a common scale."""
    columns = min(2, len(samples))
    rows = -(-len(samples) // columns)
    texts = [[short(word) for word in (sample.words or ())[:MAX_WORDS]] for sample in samples]
    side = 1.8 + 0.2 * max(1, *map(len, texts))
    figure = Figure(figsize=(side * columns + 0.9, side * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    all_axes = list(grid.flat)
    for axes in all_axes[len(samples) :]:
        axes.remove()
    top = max(
        (float(weights[: len(text), : len(text)].max()) for weights, text in zip(maps, texts, strict=True) if text),
        default=1.0,
    )
    drawn = None
    for axes, sample, weights, text in zip(all_axes, samples, maps, texts, strict=False):
        drawn = draw_words(axes, text, weights, top)
        truncated = len(sample.words or ()) > len(text)
        axes.set_title(short(sample.label) + (f" (the first {len(text)} words)" if truncated else ""), fontsize=10)
    assert drawn is not None
    color_bar = figure.colorbar(drawn, ax=all_axes[: len(samples)], shrink=0.6)
    color_bar.set_label(WORD_SCALE, fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def draw_words(axes: Axes, words: Sequence[str], weights: Array, top: float) -> AxesImage:
    """Draw the weights (T, T) between the first words, as queries (down) and keys (across); colors end at `top`."""
    drawn = axes.imshow(weights[: len(words), : len(words)], cmap=COLORMAP, vmin=0, vmax=top)
    axes.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
    axes.set_yticks(range(len(words)), words, fontsize=8)
    axes.tick_params(length=0)
    return drawn


def short(text: str, max_chars: int = MAX_CHARS) -> str:
    """Truncate text to `max_chars` characters and escape it for matplotlib."""
    text = text if len(text) <= max_chars else text[: max_chars - 1] + "…"
    return text.replace("$", r"\$")
