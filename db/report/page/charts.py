"""Charts as Vega-Lite specifications, in groups that also list their numbers as a table for accessibility.

Points have short keys to keep pages small: r (index of the row), x, y, l and h (ends of the band), p (published value),
s (values of single seeds), m, n and q (mean, seeds and published value as texts). Colors are variables of the page's
style sheet, light or dark. Untrusted text is data, never part of an expression.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.page.records import SeedBand

Spec = dict[str, Any]
Point = Mapping[str, Any]

COLORS = 8
"""Colors of the style sheet, `--c0` to `--c7`; further lines are dashed."""

DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
ROW: Spec = {"field": "row", "title": "row"}
HIDDEN = {"name": "hidden", "value": []}
VISIBLE = {"filter": "indexof(hidden, datum.r) < 0"}
HAS_BAND, HAS_X, HAS_Y = "isValid(datum.l)", "isValid(datum.x)", "isValid(datum.y)"
HAS_PUBLISHED = "isValid(datum.p)"
OPTIONAL = {"l", "h", "p", "s"}
"""Fields that a chart's points may lack; Vega would find no extent of their layers."""
AREA: Spec = {"type": "area", "opacity": 0.16, "aria": False}
LINE: Spec = {"type": "line", "strokeWidth": 1.75, "aria": False}
DIAMOND: Spec = {"type": "point", "shape": "diamond", "filled": False, "size": 90, "opacity": 1, "aria": False}
SEED: Spec = {"type": "point", "filled": True, "size": 14, "opacity": 0.6, "aria": False}
SEEDS = [{"filter": "isValid(datum.s)"}, {"flatten": ["s"], "as": ["v"]}]
SELECT_NEAREST = {"type": "point", "nearest": True, "on": "pointermove", "clear": "pointerout"}


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
        comparison: data from which the page's script draws two trials side by side.
    """

    id: str
    title: str
    lead: list[str] = field(default_factory=list)
    legend: Sequence[tuple[int, str]] = ()
    charts: list[Chart] = field(default_factory=list)
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    pictures: list[tuple[str, str, str]] = field(default_factory=list)
    comparison: Mapping[str, Any] | None = None

    def note_limit(self, count: int, noun: str) -> None:
        """Add a sentence if there are more charts than are drawn."""
        if count > Limits.charts:
            self.lead.append(f"The first {Limits.charts} of {count} {noun}.")

    def add_picture(self, caption: str, description: str, png: bytes) -> None:
        """Add a picture, the content of a PNG file."""
        self.pictures.append((caption, description, f"data:image/png;base64,{b64encode(png).decode()}"))


def rounded(value: float) -> float:
    """Return the value with five digits, more than a chart shows."""
    return float(f"{value:.5g}")


def labels(texts: Sequence[str]) -> list[str]:
    """Return unique labels, cut to the length of a legend's."""
    unique: list[str] = []
    for text in texts:
        label, number = cut(text, Limits.label), 1
        while label in unique:
            number += 1
            label = f"{cut(text, Limits.label)} ({number})"
        unique.append(label)
    return unique


def band_chart(caption: str, description: str, legend: Sequence[str], curves: Mapping[int, SeedBand], y: str) -> Chart:
    """Return lines over steps, each with its band; `curves` by the index of their label."""
    values = []
    for row, band in curves.items():
        stride = max(1, len(band.steps) // 25)
        for index, (step, mean, low, high) in enumerate(zip(band.steps, band.mean, band.low, band.high, strict=True)):
            point: dict[str, Any] = {"r": row, "x": int(step), "y": rounded(mean)}
            if band.seeds > 1:
                point |= {"l": rounded(low), "h": rounded(high)}
            if len(band.steps) <= Limits.marked_points:
                point["f"] = 1
            if index % stride == 0 or index == len(band.steps) - 1:
                point["t"] = 1
            values.append(point)
    tooltip = [ROW, _tooltip("x", "step", ",d"), _tooltip("y", y, ".4~g")]
    tooltip += [_tooltip("l", "lowest seed", ".4~g"), _tooltip("h", "highest seed", ".4~g")]
    encoding: Spec = {"x": _axis("x", "step", format="~s", tickMinStep=1), "y": _axis("y"), "color": _color(legend)}
    layers = [
        _layer(AREA, {**encoding, "y": _axis("l"), "y2": {"field": "h"}}, HAS_BAND),
        _layer(LINE, {**encoding, "strokeDash": _dash(legend)}),
        _hover(encoding, tooltip, "datum.t === 1"),
    ]
    if any("f" in value for value in values):
        layers.insert(2, _layer(_dot(35, aria=False), encoding, "datum.f === 1"))
    return _chart(caption, description, legend, values, layers)


def parameter_chart(
    caption: str,
    description: str,
    legend: Sequence[str],
    points: Sequence[Point],
    x: str,
    y: str,
    texts: Sequence[str] = ("seeds", "published"),
) -> Chart:
    """Return a metric over a parameter: lines with bands of ± std, single seeds, reference values as hollow diamonds.

    `points` have r, x, y, l, h, s, p; one without x is drawn as a horizontal line. `texts` are the names of n and q.
    """
    numbers = _number_tooltips(y, *texts)
    whole = all(float(point.get("x", 0)).is_integer() for point in points)
    encoding = {"x": _axis("x", x, **({"tickMinStep": 1} if whole else {})), "color": _color(legend)}
    has_point = f"{HAS_X} && {HAS_Y}"
    layers = [
        _layer(AREA, {**encoding, "y": _axis("l"), "y2": {"field": "h"}}, has_point, HAS_BAND),
        _layer(LINE, {**encoding, "y": _axis("y"), "strokeDash": _dash(legend)}, has_point),
        _seeds(SEED, {**encoding, "y": _axis("v")}, HAS_X),
        _layer(_dot(45, aria=False), {**encoding, "y": _axis("y")}, has_point),
        _layer(DIAMOND, {**encoding, "y": _axis("p")}, f"{HAS_X} && {HAS_PUBLISHED}"),
        _hover({**encoding, "y": _axis("at")}, [ROW, _tooltip("x", x), *numbers], HAS_X),
    ]
    if any("x" not in point for point in points):
        level = {"y": _axis("y"), "color": _color(legend), "tooltip": [ROW, *numbers]}
        layers.append(_layer({"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5}, level, f"!{HAS_X} && {HAS_Y}"))
    return _chart(caption, description, legend, points, layers)


def dot_chart(
    caption: str,
    description: str,
    rows: Sequence[str],
    points: Sequence[Point],
    x: str,
    texts: Sequence[str] = ("seeds", "published"),
    *,
    zero: bool = False,
) -> Chart:
    """Return one line per row: a value with an interval, single seeds below it, a reference as a hollow diamond.

    `points` are without x; `texts` are the names of n and q. `zero` adds a line at 0.
    """
    names = [rows[point["r"]] for point in points]
    axis = {"field": "row", "type": "nominal", "sort": names, "axis": {"title": None, "labelLimit": 190}}
    encoding = {"y": axis, "color": _color(rows)}
    rule = {"type": "rule", "strokeWidth": 2, "opacity": 0.55, "aria": False}
    layers = [
        _layer(rule, {**encoding, "x": _axis("l", x), "x2": {"field": "h"}}, HAS_BAND),
        _seeds({**SEED, "yOffset": 8}, {**encoding, "x": _axis("v", x)}),
        _layer(_dot(60, aria=False), {**encoding, "x": _axis("y", x)}, HAS_Y),
        _layer(DIAMOND, {**encoding, "x": _axis("p", x)}, HAS_PUBLISHED),
        _hover({**encoding, "x": _axis("at", x)}, [ROW, *_number_tooltips(x, *texts)]),
    ]
    if zero:
        line = {"type": "rule", "strokeDash": [4, 3], "color": "var(--quiet)", "aria": False}
        layers.insert(
            0, {"data": {"values": [{}]}, "mark": line, "encoding": {"x": {"datum": 0, "type": "quantitative"}}}
        )
    chart = _chart(caption, description, rows, points, layers)
    chart.spec["height"] = 24 + 30 * len(points)
    return chart


def histogram_chart(caption: str, description: str, legend: Sequence[str], points: Sequence[Point], x: str) -> Chart:
    """Return outlines of histograms: `points` are r, x (left edge) and y (share), and one at the last right edge."""
    encoding = {"x": _axis("x", x), "y": _axis("y", format="%"), "color": _color(legend)}
    tooltip = [ROW, _tooltip("x", f"{x}, from", ".4~g"), _tooltip("y", "share", ".1%")]
    outline = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.6, "aria": False}
    layers = [_layer(outline, {**encoding, "strokeDash": _dash(legend)}), _hover(encoding, tooltip)]
    return _chart(caption, description, legend, points, layers)


def layer_chart(caption: str, description: str, legend: Sequence[str], points: Sequence[Point]) -> Chart:
    """Return the drop ratio per layer of a model: `points` are r, x (layer from 1), y and t (name of the site)."""
    x = _axis("x", "layer", tickMinStep=1, format="d")
    encoding = {"x": x, "y": _axis("y"), "color": _color(legend)}
    tooltip = [ROW, _tooltip("t", "site"), _tooltip("x", "layer"), _tooltip("y", "drop ratio", ".3~f")]
    layers = [
        _layer(LINE, {**encoding, "strokeDash": _dash(legend)}),
        _layer(_dot(45, aria=False), encoding),
        _hover(encoding, tooltip),
    ]
    return _chart(caption, description, legend, points, layers)


def _chart(caption: str, description: str, legend: Sequence[str], points: Sequence[Point], layers: list[Spec]) -> Chart:
    """Return the chart without the layers and tooltips of fields that no point has."""
    fields = {"row", *(key for point in points for key in point)}
    for layer in layers:
        if "tooltip" in (encoding := layer["encoding"]):
            encoding["tooltip"] = [channel for channel in encoding["tooltip"] if channel["field"] in fields]
    spec = {
        "description": cut(description, 400),
        "width": "container",
        "height": 200,
        "params": [HIDDEN, {"name": "rows", "value": labels(legend)}],
        "data": {"values": points},
        "transform": [
            VISIBLE,
            {"calculate": "rows[datum.r]", "as": "row"},
            {"calculate": f"{HAS_Y} ? datum.y : datum.p", "as": "at"},
        ],
        "layer": [layer for layer in layers if fields >= _fields(layer) & OPTIONAL],
    }
    return Chart(caption, spec)


def _fields(layer: Spec) -> set[str]:
    """Return the fields of points that a layer draws; v stands for the single seeds."""
    names = {channel["field"] for channel in layer["encoding"].values() if "field" in channel}
    return {"s" if name == "v" else name for name in names}


def _layer(mark: Spec, encoding: Spec, *filters: str) -> Spec:
    layer = {"mark": mark, "encoding": encoding}
    return {"transform": [{"filter": condition} for condition in filters], **layer} if filters else layer


def _seeds(mark: Spec, encoding: Spec, *filters: str) -> Spec:
    """Return a point per seed."""
    layer = _layer(mark, encoding, *filters)
    return {**layer, "transform": [*layer.get("transform", ()), *SEEDS]}


def _hover(encoding: Spec, tooltip: list[Spec], *filters: str) -> Spec:
    """Return a ring around the point nearest to the pointer, wherever it is in the plot, with its tooltip."""
    opacity = {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}
    mark = {"type": "point", "filled": False, "size": 120, "strokeWidth": 1.5, "aria": False}
    layer = _layer(mark, {**encoding, "opacity": opacity, "tooltip": tooltip}, *filters)
    return {**layer, "params": [{"name": "near", "select": SELECT_NEAREST}]}


def _dot(size: int, opacity: int = 1, **options: Any) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, **options}


def _axis(name: str, title: str | None = None, **axis: Any) -> Spec:
    """Return a quantitative axis; without a title if the caption of the chart names it."""
    axis = {"title": None if title is None else cut(title, 60), **axis}
    return {"field": name, "type": "quantitative", "scale": {"zero": False, "nice": True}, "axis": axis}


def _by_row(legend: Sequence[str], values: Sequence[Any]) -> Spec:
    scale = {"domain": list(range(len(legend))), "range": values}
    return {"field": "r", "type": "nominal", "scale": scale, "legend": None}


def _color(legend: Sequence[str]) -> Spec:
    return _by_row(legend, [f"var(--c{index % COLORS})" for index in range(len(legend))])


def _dash(legend: Sequence[str]) -> Spec:
    """Return solid lines for the first eight rows, dashed ones for the second, dotted ones for the third."""
    return _by_row(legend, [DASHES[index // COLORS % len(DASHES)] for index in range(len(legend))])


def _number_tooltips(*names: str) -> list[Spec]:
    return [_tooltip(key, name) for key, name in zip("mnq", names, strict=False)]


def _tooltip(name: str, title: str, format: str | None = None) -> Spec:
    return {"field": name, "title": cut(title, 60), **({"format": format} if format else {})}
