"""What `dropbench analyze` kept of a suite's trials, side by side: histograms, and maps as pictures."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from db.report.page import charts
from db.report.page.charts import Chart, Group, labels, rounded
from db.report.text import cut
from db.report.view import Outcome, View
from harness.rundir import RunDirectory

Array = NDArray[Any]

HISTOGRAMS = {
    "entropy": "Entropy of the attention",
    "diversity": "Div, the overlap of heads",
    "disagreement": "Disagreement of heads",
    "sparsity": "Sparsity of the attention",
}
AXES = {
    "entropy": "entropy (nats)",
    "diversity": "Div (large: heads overlap)",
    "disagreement": "Disagreement (1: all alike)",
    "sparsity": "largest weight × length",
}
MAPS = {
    "attention-map": "Attention maps",
    "interactions": "What a body's joints attend to",
    "predictions": "What is found",
}

BINS = 40
MOST_CELLS = 200
MOST_SEEDS = 5
MOST_CHARTS = 12
MOST_PICTURES = 12
PICTURE_BYTES = 1_500_000
"""Of all pictures of a page."""


def analysis_groups(view: View, runs: Path) -> list[Group]:
    """A group for each kind of analysis that any of the trials has."""
    cells = [one for one in list(view.cells.values())[:MOST_CELLS] if one.seeds]
    groups = [_histograms(kind, view, cells, runs) for kind in HISTOGRAMS]
    left = PICTURE_BYTES
    for kind in MAPS:
        group = _pictures(kind, cells, runs, left)
        groups.append(group)
        left -= sum(len(uri) for *_, uri in group.pictures)
    return [group for group in groups if group.charts or group.pictures]


def _histograms(kind: str, view: View, cells: list[Outcome], runs: Path) -> Group:
    """The last layer's values as outlines, a plot a column, an outline a row; all layers' means as a table."""
    found = {(one.row, one.column): parts for one in cells if (parts := list(_arrays(kind, one, runs)))}
    rows, legend = list(view.rows), labels(view.rows)
    drawn = sorted({rows.index(row) for row, _ in found})
    group = Group(
        kind, HISTOGRAMS[kind], ["The last layer, of all seeds that were analyzed."],
        [(place, legend[place]) for place in drawn],
        header=("column", "row", "seeds", "layer", "mean"),
    )  # fmt: skip
    for column in view.columns:
        here = {rows.index(row): parts for (row, at), parts in found.items() if at == column}
        if not here or len(group.charts) == MOST_CHARTS:
            continue
        layers = {place: _layers(kind, parts) for place, parts in here.items()}
        points = _outlines(kind, {place: _last(kind, parts) for place, parts in here.items()})
        if points:
            told = f"{HISTOGRAMS[kind]}, last layer: {column}"
            group.charts.append(Chart(column, told, charts.steps(told, legend, points, AXES[kind], "share")))
        for place, means in layers.items():
            seeds = str(len(here[place]))
            group.rows += [
                (column, legend[place], seeds, cut(layer, 80), f"{mean:.4g}") for layer, mean in means.items()
            ]
    return group


def _last(kind: str, parts: list[dict[str, Array]]) -> tuple[Array, Array]:
    """Values and their weights in the last layer: of samples one each, of a histogram its counts."""
    values, weights = [], []
    for arrays in parts:
        if kind == "sparsity":
            name = [name for name in arrays if name.endswith(".counts")][-1].removesuffix(".counts")
            edges = arrays[f"{name}.edges"]
            values.append((edges[:-1] + edges[1:]) / 2)
            weights.append(arrays[f"{name}.counts"].sum(axis=0))
        else:
            last = list(arrays.values())[-1]
            values.append(last if last.ndim == 1 else last.mean(axis=1))
            weights.append(np.ones(len(values[-1])))
    together, weight = np.concatenate(values), np.concatenate(weights)
    real = np.isfinite(together)
    return together[real], weight[real]


def _outlines(kind: str, found: Mapping[int, tuple[Array, Array]]) -> list[dict[str, Any]]:
    found = {place: one for place, one in found.items() if one[1].sum() > 0}
    if not found:
        return []
    ends = [_range(values, weights) for values, weights in found.values()]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
    points = []
    for place, (values, weights) in found.items():
        shares = np.histogram(np.clip(values, edges[0], edges[-1]), edges, weights=weights)[0] / weights.sum()
        heights = [*shares, shares[-1]]
        points += [{"r": place, "x": rounded(x), "y": rounded(y)} for x, y in zip(edges, heights, strict=True)]
    return points


def _range(values: Array, weights: Array) -> tuple[float, float]:
    """From the least to where 99.9 % lie below: one far value is not to press all others into a bin."""
    order = np.argsort(values)
    below = weights[order].cumsum() / weights.sum()
    return float(values[order[0]]), float(values[order[np.searchsorted(below, 0.999).clip(max=len(order) - 1)]])


def _layers(kind: str, parts: list[dict[str, Array]]) -> dict[str, float]:
    """The mean by layer, over all seeds."""
    found: dict[str, list[float]] = {}
    for arrays in parts:
        for name, values in arrays.items():
            if kind == "sparsity":
                if name.endswith(".heads"):
                    found.setdefault(name.removesuffix(".heads"), []).append(float(values.mean()))
            else:
                found.setdefault(name, []).append(float(np.nanmean(values)) if values.size else float("nan"))
    return {name: float(np.mean(values)) for name, values in found.items()}


def _pictures(kind: str, cells: list[Outcome], runs: Path, left: int) -> Group:
    """The analysis' own figure of the first seed that has one, of each cell."""
    group = Group(
        kind,
        MAPS[kind],
        ["Of the first seed that was analyzed; the same samples in all, each picture with a scale of its own."],
    )
    missing = 0
    for outcome in cells:
        for seed in outcome.seeds[:MOST_SEEDS]:
            file = RunDirectory(runs / seed.id).analyses / f"{kind}.png"
            if not file.is_file():
                continue
            if (
                len(group.pictures) == MOST_PICTURES
                or (content := smaller(file)) is None
                or 4 * len(content) > 3 * left
            ):
                missing += 1
                break
            uri = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            left -= len(uri)
            caption = f"{cut(outcome.row, 60)} · {cut(outcome.column, 60)}, seed {seed.seed}"
            group.pictures.append((caption, f"{MAPS[kind]}: {caption}", uri))
            break
    if missing:
        group.lead.append(f"{missing} more are in the run directories, as analysis/{kind}.png.")
    return group


def smaller(file: Path, width: int = 900) -> bytes | None:
    """A PNG at most so many pixels wide, with a palette; None where it is no picture."""
    from io import BytesIO

    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file, formats=("PNG",)) as image:
            shown = image.convert("RGB")
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
        return None
    shown.thumbnail((width, 4 * width))
    made = BytesIO()
    shown.quantize(128).save(made, format="PNG", optimize=True)
    return made.getvalue()


def _arrays(kind: str, outcome: Outcome, runs: Path) -> Iterator[dict[str, Array]]:
    """What the analysis kept of each seed that has it; a damaged file is left out."""
    for seed in outcome.seeds[:MOST_SEEDS]:
        try:
            # Opened here: of a damaged file NumPy would leave it open.
            with open(RunDirectory(runs / seed.id).analyses / f"{kind}.npz", "rb") as file:
                kept = np.load(file, allow_pickle=False)
                arrays = {name: kept[name] for name in kept}
        except (OSError, ValueError, BadZipFile):
            continue
        if arrays:
            yield arrays
