"""Charts as Vega-Lite specifications, in groups that also list their numbers as a table for accessibility.

Points have short keys to keep pages small: r (index of the row), x, y, l and h (ends of the band), p (published value),
m, n and q (mean, seeds and published value as texts). The page's script sets the colors: it maps the indices of rows to
the colors of its style sheet, light or dark. Untrusted text is data, never part of an expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.report.formats.escaping import cut

Array = NDArray[np.float64]
Curve = Sequence[tuple[int, float | None]]
"""(step, value) in order of steps; the value is None if the run reported no finite number."""
Spec = dict[str, Any]
Point = Mapping[str, Any]

MAX_LABEL = 120
"""Characters of a label in a table or a chart."""
MAX_CHARTS = 24
"""Charts per group."""
MAX_ROWS = 40
"""Rows of a suite's table that are plotted."""
MAX_MARKED_POINTS = 12
"""Curves of at most this many points show them as dots."""
COLORS = 8
"""Colors of the style sheet; further lines are dashed."""

DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
ROW: Spec = {"field": "row", "title": "row"}
HIDDEN = {"name": "hidden", "value": []}
VISIBLE = {"filter": "indexof(hidden, datum.r) < 0"}
HAS_BAND, HAS_X, HAS_Y = "isValid(datum.l)", "isValid(datum.x)", "isValid(datum.y)"
HAS_PUBLISHED = "isValid(datum.p)"
AREA: Spec = {"type": "area", "opacity": 0.16, "aria": False}
LINE: Spec = {"type": "line", "strokeWidth": 1.75, "aria": False}
DIAMOND: Spec = {"type": "point", "shape": "diamond", "filled": False, "size": 90, "opacity": 1}


@dataclass(frozen=True)
class Chart:
    """A chart: its caption, and its specification, which includes a description in one sentence."""

    caption: str
    spec: Spec


@dataclass
class Group:
    """Charts under one heading.

    Attributes:
        id: anchor of the heading.
        title: the heading.
        lead: sentences on how to read the charts, and on what was left out.
        legend: index and label of each plotted row; the index selects the color.
        charts: the charts; may be empty.
        header, rows: the numbers of all charts as a table.
        pictures: caption, alternative text and data URI.
    """

    id: str
    title: str
    lead: list[str] = field(default_factory=list)
    legend: Sequence[tuple[int, str]] = ()
    charts: list[Chart] = field(default_factory=list)
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    pictures: list[tuple[str, str, str]] = field(default_factory=list)

    def note_limit(self, count: int, noun: str) -> None:
        """Add a sentence if there are more charts than are drawn."""
        if count > MAX_CHARTS:
            self.lead.append(f"The first {MAX_CHARTS} of {count} {noun}.")


def rounded(value: float) -> float:
    """Return the value with five digits, more than a chart shows."""
    return float(f"{value:.5g}")


def labels(texts: Sequence[str]) -> list[str]:
    """Return unique labels, cut to the length of a legend's."""
    unique: list[str] = []
    for text in texts:
        label, number = cut(text, MAX_LABEL), 1
        while label in unique:
            number += 1
            label = f"{cut(text, MAX_LABEL)} ({number})"
        unique.append(label)
    return unique


@dataclass(frozen=True)
class SeedBand:
    """Curves of several seeds merged into one of K points.

    Attributes:
        steps, mean, low, high: (K,). Points outside the range of a seed are computed from the other seeds.
        seeds: number of merged curves.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    seeds: int


def merge_seeds(curves: Sequence[Curve], max_points: int) -> SeedBand | None:
    """Merge curves, one per seed, interpolating between their steps; return None if none of them has a point.

    The band has at most `max_points` (at least 2), including the first and the last step.
    """
    arrays = [np.array([point for point in curve if point[1] is not None], dtype=float) for curve in curves]
    finite = [(points[:, 0], points[:, 1]) for points in arrays if len(points)]
    if not finite:
        return None
    steps = np.unique(np.concatenate([steps for steps, _ in finite]))
    if len(steps) > max_points:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, max_points).round().astype(int))]
    values = np.array([np.interp(steps, *curve, left=np.nan, right=np.nan) for curve in finite])
    # No seed covers the steps between the end of one and the start of another that was resumed from a later step.
    covered = np.isfinite(values).any(axis=0)
    steps, values = steps[covered], values[:, covered]
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    return SeedBand(steps, np.nanmean(values, axis=0), low, high, len(finite))


def band_chart(caption: str, description: str, legend: Sequence[str], curves: Mapping[int, SeedBand], y: str) -> Chart:
    """Return lines over steps, each with its band; `curves` by the index of their label."""
    values = []
    for row, band in curves.items():
        stride = max(1, len(band.steps) // 25)
        for index, (step, mean, low, high) in enumerate(zip(band.steps, band.mean, band.low, band.high, strict=True)):
            point: dict[str, Any] = {"r": row, "x": int(step), "y": rounded(mean)}
            if band.seeds > 1:
                point |= {"l": rounded(low), "h": rounded(high)}
            if len(band.steps) <= MAX_MARKED_POINTS:
                point["f"] = 1
            if index % stride == 0 or index == len(band.steps) - 1:
                point["t"] = 1
            values.append(point)
    tooltip = [ROW, _tooltip("x", "step", ",d"), _tooltip("y", y, ".4~g")]
    if any(band.seeds > 1 for band in curves.values()):
        tooltip += [_tooltip("l", "lowest seed", ".4~g"), _tooltip("h", "highest seed", ".4~g")]
    encoding: Spec = {"x": _axis("x", "step", format="~s"), "y": _axis("y"), "color": _color(legend)}
    layers = [
        _layer(AREA, {**encoding, "y": _axis("l"), "y2": {"field": "h"}}, HAS_BAND),
        _layer(LINE, {**encoding, "strokeDash": _dash(legend)}),
        _layer(_dot(90, opacity=0, aria=False), {**encoding, "tooltip": tooltip}, "datum.t === 1"),
    ]
    if any("f" in value for value in values):
        layers.append(_layer(_dot(35, aria=False), encoding, "datum.f === 1"))
    return _chart(caption, description, legend, values, layers)


def parameter_chart(
    caption: str, description: str, legend: Sequence[str], points: Sequence[Point], x: str, y: str
) -> Chart:
    """Return a metric over a parameter: lines with bands of ± std, published values as hollow diamonds.

    `points` have r, x, y, l, h, p; one without x is drawn as a horizontal line.
    """
    numbers = _number_tooltips(y)
    tooltip = [ROW, _tooltip("x", x), *numbers]
    level = {"y": _axis("y"), "color": _color(legend), "tooltip": [ROW, *numbers]}
    encoding = {"x": _axis("x", x), "color": _color(legend)}
    has_point = f"{HAS_X} && {HAS_Y}"
    layers = [
        _layer(AREA, {**encoding, "y": _axis("l"), "y2": {"field": "h"}}, has_point, HAS_BAND),
        _layer({"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5}, level, f"!{HAS_X} && {HAS_Y}"),
        _layer(LINE, {**encoding, "y": _axis("y"), "strokeDash": _dash(legend)}, has_point),
        _layer(_dot(45), {**encoding, "y": _axis("y"), "tooltip": tooltip}, has_point),
        _layer(DIAMOND, {**encoding, "y": _axis("p"), "tooltip": tooltip}, f"{HAS_X} && {HAS_PUBLISHED}"),
    ]
    return _chart(caption, description, legend, points, layers)


def dot_chart(caption: str, description: str, rows: Sequence[str], points: Sequence[Point], x: str) -> Chart:
    """Return one line per row: mean with ± std, published value as a hollow diamond; `points` without x."""
    names = [rows[point["r"]] for point in points]
    axis = {"field": "row", "type": "nominal", "sort": names, "axis": {"title": None, "labelLimit": 190}}
    encoding = {"y": axis, "color": _color(rows)}
    tooltip = [ROW, *_number_tooltips(x)]
    rule = {"type": "rule", "strokeWidth": 2, "opacity": 0.55, "aria": False}
    layers = [
        _layer(rule, {**encoding, "x": _axis("l", x), "x2": {"field": "h"}}, HAS_BAND),
        _layer(_dot(60), {**encoding, "x": _axis("y", x), "tooltip": tooltip}, HAS_Y),
        _layer(DIAMOND, {**encoding, "x": _axis("p", x), "tooltip": tooltip}, HAS_PUBLISHED),
    ]
    chart = _chart(caption, description, rows, points, layers)
    chart.spec["height"] = 48 + 26 * len(points)
    return chart


def histogram_chart(caption: str, description: str, legend: Sequence[str], points: Sequence[Point], x: str) -> Chart:
    """Return outlines of histograms: `points` are r, x (left edge) and y (share), and one at the last right edge."""
    encoding = {"x": _axis("x", x), "y": _axis("y", format="%"), "color": _color(legend)}
    tooltip = [ROW, _tooltip("x", f"{x}, from", ".4~g"), _tooltip("y", "share", ".1%")]
    outline = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.6, "aria": False}
    layers = [
        _layer(outline, {**encoding, "strokeDash": _dash(legend)}),
        _layer(_dot(70, opacity=0, aria=False), {**encoding, "tooltip": tooltip}),
    ]
    return _chart(caption, description, legend, points, layers)


def layer_chart(caption: str, description: str, legend: Sequence[str], points: Sequence[Point]) -> Chart:
    """Return the drop ratio per layer of a model: `points` are r, x (layer from 1), y and s (name of the site)."""
    y = {**_axis("y"), "scale": {"zero": True}}
    encoding = {"x": _axis("x", "layer", tickMinStep=1, format="d"), "y": y, "color": _color(legend)}
    tooltip = [ROW, _tooltip("s", "site"), _tooltip("x", "layer"), _tooltip("y", "drop ratio", ".3~f")]
    layers = [
        _layer(LINE, {**encoding, "strokeDash": _dash(legend)}),
        _layer(_dot(45, aria=False), {**encoding, "tooltip": tooltip}),
    ]
    return _chart(caption, description, legend, points, layers)


def _chart(caption: str, description: str, legend: Sequence[str], points: Sequence[Point], layers: list[Spec]) -> Chart:
    """Return the chart without layers of optional fields that no point has, for which Vega would find no extent."""
    fields = {key for point in points for key in point}
    needed = [{channel["field"] for channel in layer["encoding"].values() if "field" in channel} for layer in layers]
    spec = {
        "description": cut(description, 400),
        "width": "container",
        "height": 200,
        "params": [HIDDEN, {"name": "rows", "value": labels(legend)}],
        "data": {"values": points},
        "transform": [VISIBLE, {"calculate": "rows[datum.r]", "as": "row"}],
        "layer": [layer for layer, names in zip(layers, needed, strict=True) if fields >= names & {"l", "h", "p"}],
    }
    return Chart(caption, spec)


def _layer(mark: Spec, encoding: Spec, *filters: str) -> Spec:
    layer = {"mark": mark, "encoding": encoding}
    return {"transform": [{"filter": condition} for condition in filters], **layer} if filters else layer


def _dot(size: int, opacity: int = 1, **options: Any) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, **options}


def _axis(name: str, title: str | None = None, **axis: Any) -> Spec:
    """Return a quantitative axis; without a title if the caption of the chart names it."""
    axis = {"title": None if title is None else cut(title, 60), **axis}
    return {"field": name, "type": "quantitative", "scale": {"zero": False, "nice": True}, "axis": axis}


def _color(legend: Sequence[str], **scale: Any) -> Spec:
    scale = {"domain": list(range(len(legend))), **scale}
    return {"field": "r", "type": "nominal", "scale": scale, "legend": None}


def _dash(legend: Sequence[str]) -> Spec:
    """Return solid lines for the first eight rows, dashed ones for the second, dotted ones for the third."""
    return _color(legend, range=[DASHES[index // COLORS % len(DASHES)] for index in range(len(legend))])


def _number_tooltips(name: str) -> list[Spec]:
    return [_tooltip("m", name), _tooltip("n", "seeds"), _tooltip("q", "published")]


def _tooltip(name: str, title: str, format: str | None = None) -> Spec:
    return {"field": name, "title": cut(title, 60), **({"format": format} if format else {})}
