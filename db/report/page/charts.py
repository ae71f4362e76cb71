"""Plots as Vega-Lite specifications, each with its numbers as a table for who cannot see it.

Colours are not set here: the rows of a plot are numbered, and the page's script gives the numbers the colours of its
style sheet, light or dark. Text from outside is data, never part of an expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from db.report.page.bands import Band
from db.report.text import cut

Spec = dict[str, Any]

IN_TABLE = 120
"""Letters of a label in a table or a plot."""

MOST_CHARTS = 24
"""Of a group."""
MOST_ROWS = 40
"""Of a suite's table that are plotted."""
FEW = 12
"""A curve of so few points shows them."""
COLOURS = 8
"""Of the style sheet; beyond these, lines are dashed."""
HIDDEN = {"name": "hidden", "value": []}
SHOWN = {"filter": "indexof(hidden, datum.r) < 0"}


@dataclass(frozen=True)
class Chart:
    """One plot: its caption, what it shows in a sentence, and its specification."""

    caption: str
    told: str
    spec: Spec


@dataclass
class Group:
    """Plots that belong together.

    Attributes:
        id: of the heading.
        title: the heading.
        lead: sentences on how to read it, and on what was left out.
        legend: number and label of what is drawn; the numbers are the colours.
        charts: the plots, if there are any.
        header, rows: the numbers of all of them as a table.
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

    def first_of(self, count: int, what: str) -> None:
        """Say so where there are more plots than are drawn."""
        if count > MOST_CHARTS:
            self.lead.append(f"The first {MOST_CHARTS} of {count} {what}.")


def rounded(value: float | None) -> float | None:
    """Five digits: more than a plot shows."""
    return None if value is None else float(f"{value:.5g}")


def labels(texts: Sequence[str]) -> list[str]:
    """Labels cut to the length of a legend's, and no two of them the same."""
    made: list[str] = []
    for text in texts:
        label, number = cut(text, IN_TABLE), 1
        while label in made:
            number += 1
            label = f"{cut(text, IN_TABLE)} ({number})"
        made.append(label)
    return made


def bands(told: str, legend: Sequence[str], curves: Mapping[int, Band], x: str, y: str) -> Spec:
    """Lines over the steps, each with its band; `curves` by number of the label."""
    values = []
    for number, one in curves.items():
        flagged = max(1, len(one.steps) // 25)
        for at, (step, mean, low, high) in enumerate(zip(one.steps, one.mean, one.low, one.high, strict=True)):
            point: dict[str, Any] = {"r": number, "x": int(step), "y": rounded(mean)}
            if one.seeds > 1:
                point |= {"l": rounded(low), "h": rounded(high)}
            if len(one.steps) <= FEW:
                point["f"] = 1
            if at % flagged == 0 or at == len(one.steps) - 1:
                point["t"] = 1
            values.append(point)
    tooltip = [_told("row", "row"), _told("x", x, ",d"), _told("y", y, ".4~g")]
    if any(one.seeds > 1 for one in curves.values()):
        tooltip += [_told("l", "lowest seed", ".4~g"), _told("h", "highest seed", ".4~g")]
    place: Spec = {"x": _axis("x", x, format="~s"), "y": _axis("y"), "color": _colour(legend)}
    layers: list[Spec] = [
        {
            "transform": [{"filter": "isValid(datum.l)"}],
            "mark": {"type": "area", "opacity": 0.16, "aria": False},
            "encoding": {**place, "y": _axis("l"), "y2": {"field": "h"}},
        },
        {
            "mark": {"type": "line", "strokeWidth": 1.75, "aria": False},
            "encoding": {**place, "strokeDash": _dash(legend)},
        },
        {
            "transform": [{"filter": "datum.t === 1"}],
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 0, "aria": False},
            "encoding": {**place, "tooltip": tooltip},
        },
    ]
    if any("f" in value for value in values):
        few = {"type": "point", "filled": True, "size": 35, "opacity": 1, "aria": False}
        layers.append({"transform": [{"filter": "datum.f === 1"}], "mark": few, "encoding": place})
    return _spec(told, values, layers, legend)


def over(told: str, legend: Sequence[str], points: Sequence[Mapping[str, Any]], x: str, y: str) -> Spec:
    """The metric over a parameter: lines with bands of ± std, published values as hollow diamonds.

    Args:
        told: the plot in a sentence.
        legend: labels of the lines.
        points: r (number of the line), x, y, low, high, published; a point without x is a level for all x.
        x: name of the parameter.
        y: name of the metric.
    """
    tooltip = [_told("row", "row"), _told("x", x), *_numbers(y)]
    place = {"x": _axis("x", x), "color": _colour(legend)}
    lines = {"filter": "isValid(datum.x) && isValid(datum.y)"}
    layers = [
        {
            "transform": [lines, {"filter": "isValid(datum.l)"}],
            "mark": {"type": "area", "opacity": 0.16, "aria": False},
            "encoding": {**place, "y": _axis("l"), "y2": {"field": "h"}},
        },
        {
            "transform": [{"filter": "!isValid(datum.x) && isValid(datum.y)"}],
            "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
            "encoding": {"y": _axis("y"), "color": _colour(legend), "tooltip": [_told("row", "row"), *_numbers(y)]},
        },
        {
            "transform": [lines],
            "mark": {"type": "line", "strokeWidth": 1.75, "aria": False},
            "encoding": {**place, "y": _axis("y"), "strokeDash": _dash(legend)},
        },
        {
            "transform": [lines],
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
            "encoding": {**place, "y": _axis("y"), "tooltip": tooltip},
        },
        {
            "transform": [{"filter": "isValid(datum.x) && isValid(datum.p)"}],
            "mark": {"type": "point", "shape": "diamond", "filled": False, "size": 90, "opacity": 1},
            "encoding": {**place, "y": _axis("p"), "tooltip": tooltip},
        },
    ]
    return _spec(told, list(points), layers, legend)


def dots(told: str, rows: Sequence[str], points: Sequence[Mapping[str, Any]], x: str) -> Spec:
    """A line a row: mean with ± std, and what is published as a hollow diamond; `points` as in `over`, without x."""
    shown = [rows[point["r"]] for point in points]
    place = {
        "y": {"field": "row", "type": "nominal", "sort": shown, "axis": {"title": None, "labelLimit": 190}},
        "color": _colour(rows),
    }
    tooltip = [_told("row", "row"), *_numbers(x)]
    layers = [
        {
            "transform": [{"filter": "isValid(datum.l)"}],
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.55, "aria": False},
            "encoding": {**place, "x": _axis("l", x), "x2": {"field": "h"}},
        },
        {
            "transform": [{"filter": "isValid(datum.y)"}],
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {**place, "x": _axis("y", x), "tooltip": tooltip},
        },
        {
            "transform": [{"filter": "isValid(datum.p)"}],
            "mark": {"type": "point", "shape": "diamond", "filled": False, "size": 90, "opacity": 1},
            "encoding": {**place, "x": _axis("p", x), "tooltip": tooltip},
        },
    ]
    return {**_spec(told, list(points), layers, rows), "height": 48 + 26 * len(points)}


def steps(told: str, legend: Sequence[str], points: Sequence[Mapping[str, Any]], x: str, y: str) -> Spec:
    """Outlines of histograms: `points` are r, x (left edge), y (share); the last of each has the right edge."""
    place = {"x": _axis("x", x), "y": _axis("y", format="%"), "color": _colour(legend)}
    tooltip = [_told("row", "row"), _told("x", f"{x}, from", ".4~g"), _told("y", y, ".1%")]
    layers = [
        {
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.6, "aria": False},
            "encoding": {**place, "strokeDash": _dash(legend)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0, "aria": False},
            "encoding": {**place, "tooltip": tooltip},
        },
    ]
    return _spec(told, list(points), layers, legend)


def by_layer(told: str, legend: Sequence[str], points: Sequence[Mapping[str, Any]], y: str) -> Spec:
    """A value a layer: `points` are r, x (layer from 1), y, and s (what it is called)."""
    place = {
        "x": _axis("x", "layer", tickMinStep=1, format="d"),
        "y": {**_axis("y"), "scale": {"zero": True}},
        "color": _colour(legend),
    }
    tooltip = [_told("row", "row"), _told("s", "site"), _told("x", "layer"), _told("y", y, ".3~f")]
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 1.75, "aria": False},
            "encoding": {**place, "strokeDash": _dash(legend)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1, "aria": False},
            "encoding": {**place, "tooltip": tooltip},
        },
    ]
    return _spec(told, list(points), layers, legend)


def _spec(told: str, values: list[Any], layers: list[Spec], legend: Sequence[str]) -> Spec:
    drawn = {key for value in values for key in value}
    layers = [layer for layer in layers if drawn >= _needed(layer)]
    return {
        "description": cut(told, 400),
        "width": "container",
        "height": 200,
        "params": [HIDDEN, {"name": "rows", "value": labels(legend)}],
        "data": {"values": values},
        "transform": [SHOWN, {"calculate": "rows[datum.r]", "as": "row"}],
        "layer": layers,
    }


def _needed(layer: Spec) -> set[str]:
    """The optional fields that a layer draws: of one that no value has, Vega would find no extent."""
    return {place["field"] for place in layer["encoding"].values() if isinstance(place, dict)} & {"l", "h", "p"}


def _axis(name: str, title: str | None = None, **axis: Any) -> Spec:
    """Without a title where the plot's caption says what it is."""
    return {
        "field": name,
        "type": "quantitative",
        "scale": {"zero": False, "nice": True},
        "axis": {"title": None if title is None else cut(title, 60), **axis},
    }


def _colour(legend: Sequence[str]) -> Spec:
    return {"field": "r", "type": "nominal", "scale": {"domain": list(range(len(legend)))}, "legend": None}


def _dash(legend: Sequence[str]) -> Spec:
    """The second eight of the lines are dashed, the third dotted."""
    patterns = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
    numbers = list(range(len(legend)))
    ranges = [patterns[number // COLOURS % len(patterns)] for number in numbers]
    return {"field": "r", "type": "nominal", "scale": {"domain": numbers, "range": ranges}, "legend": None}


def _numbers(name: str) -> list[Spec]:
    return [_told("m", name), _told("n", "seeds"), _told("q", "published")]


def _told(name: str, title: str, format: str | None = None) -> Spec:
    return {"field": name, "title": cut(title, 60), **({"format": format} if format else {})}
