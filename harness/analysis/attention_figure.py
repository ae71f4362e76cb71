"""Attention maps drawn over images, and between words."""

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

from harness.task import Shown

Array = NDArray[np.float64]

COLOURS, ALPHA, LIGHT = "viridis", 0.75, 0.7
RAYS = "plasma_r"
"""Of lines over an image, whose weakest are light."""
MOST_WORDS, MOST_LETTERS = 24, 14
COLUMNS = 4
SCALE = "attention weight × {} (1: even)"
"""What colours stand for, with the name of what is attended to."""


def attention_figure(title: str, samples: Sequence[Shown], maps: Sequence[Array]) -> Figure:
    """The samples with their maps: of images (rows, columns) on the patches, of texts (words, words)."""
    return _words(title, samples, maps) if samples[0].words is not None else _images(title, samples, maps)


def _images(title: str, samples: Sequence[Shown], maps: Sequence[Array]) -> Figure:
    """Each image above its map, which is laid over it; one scale for all, on which even attention is 1."""
    columns = min(COLUMNS, len(samples))
    bands = -(-len(samples) // columns)
    figure = Figure(figsize=(2.0 * columns + 1.2, 4.1 * bands + 0.8), layout="constrained")
    grid = figure.subplots(2 * bands, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    top = max(1.0, *(float(found.max() * found.size) for found in maps))
    drawn = None
    for place, (sample, found) in enumerate(zip(samples, maps, strict=True)):
        band, column = divmod(place, columns)
        image = np.asarray(sample.image)
        extent = (0, image.shape[1], image.shape[0], 0)
        above, below = grid[2 * band, column], grid[2 * band + 1, column]
        above.imshow(image.squeeze(), cmap="gray", extent=extent, vmin=0, vmax=255, interpolation="nearest")
        above.set_title(short(sample.label), fontsize=10)
        drawn = draw_over(below, image, found, top)
    assert drawn is not None
    figure.colorbar(drawn, ax=grid, shrink=0.6).set_label(SCALE.format("patches"), fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def draw_faint(axes: Axes, image: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """An image (H, W, 1 or 3), light and without colour, so that all colour is what lies over it; gives its extent."""
    extent = (0, image.shape[1], image.shape[0], 0)
    light = 255 - (255 - image.mean(axis=2)) * LIGHT
    axes.imshow(light, cmap="gray", extent=extent, vmin=0, vmax=255, interpolation="nearest")
    return extent


def draw_over(axes: Axes, image: NDArray[np.uint8], found: Array, top: float) -> AxesImage:
    """A map over a faint image.

    Args:
        axes: where.
        image: (H, W, 1 or 3).
        found: weights on the patches (rows, columns).
        top: the end of the scale, on which even attention is 1.
    """
    extent = draw_faint(axes, image)
    return axes.imshow(
        found * found.size, cmap=COLOURS, alpha=ALPHA, extent=extent, vmin=0, vmax=top, interpolation="nearest"
    )


def draw_between(
    axes: Axes, image: NDArray[np.uint8], places: Array, query: int, weights: Array, top: float
) -> ScalarMappable:
    """What one token attends to, as lines from it to the others over a faint image.

    Args:
        axes: where.
        image: (H, W, 1 or 3).
        places: of T tokens (T, 2), right and down in pixels.
        query: number of the token.
        weights: its attention on each (T,).
        top: the end of the scale, on which even attention is 1.
    """
    draw_faint(axes, image)
    order = np.argsort(weights)  # the strongest above the others
    ends, strength = places[order], weights[order] * len(weights)
    scale = ScalarMappable(Normalize(0, top), RAYS)
    colours = scale.to_rgba(strength)
    colours[:, 3] = np.clip(strength / top, 0, 1)
    rays = np.stack([np.broadcast_to(places[query], ends.shape), ends], axis=1)
    axes.add_collection(LineCollection(list(rays), colors=colours, linewidths=0.8))
    axes.scatter(ends[:, 0], ends[:, 1], s=4, c=strength, cmap=RAYS, vmin=0, vmax=top, linewidths=0)
    axes.plot(*places[query], marker="o", markersize=5, markerfacecolor="white", markeredgecolor="black")
    axes.set_xlim(0, image.shape[1])
    axes.set_ylim(image.shape[0], 0)
    return scale


def _words(title: str, samples: Sequence[Shown], maps: Sequence[Array]) -> Figure:
    """A heat map for each text, its first words as queries down and keys across; one scale for all."""
    columns = min(2, len(samples))
    rows = -(-len(samples) // columns)
    texts = [[short(word) for word in (sample.words or ())[:MOST_WORDS]] for sample in samples]
    side = 1.8 + 0.2 * max(1, *map(len, texts))
    figure = Figure(figsize=(side * columns + 0.9, side * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    places = list(grid.flat)
    for axes in places[len(samples) :]:
        axes.remove()
    top = max(
        (float(found[: len(text), : len(text)].max()) for found, text in zip(maps, texts, strict=True) if text),
        default=1.0,
    )
    drawn = None
    for axes, sample, found, text in zip(places, samples, maps, texts, strict=False):
        drawn = axes.imshow(found[: len(text), : len(text)], cmap=COLOURS, vmin=0, vmax=top)
        axes.set_xticks(range(len(text)), text, rotation=90, fontsize=8)
        axes.set_yticks(range(len(text)), text, fontsize=8)
        axes.tick_params(length=0)
        cut = len(sample.words or ()) - len(text)
        axes.set_title(short(sample.label) + (f" (the first {len(text)} words)" if cut else ""), fontsize=10)
    assert drawn is not None
    figure.colorbar(drawn, ax=places[: len(samples)], shrink=0.6).set_label(
        "attention weight (row: query, column: key)", fontsize=9
    )
    figure.suptitle(title, fontsize=10)
    return figure


def short(text: str, most: int = MOST_LETTERS) -> str:
    """Text that matplotlib shows as it stands, cut where it has more letters than `most`."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")
