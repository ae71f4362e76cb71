"""Attention maps of several models on the same samples as one SVG drawing with one color scale.

A drawing works without scripts. Its texts take the colors of the page's style sheet, light or dark.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.report.formats.escaping import cut
from harness.cli.plain_text import plain

Array = NDArray[Any]
Arrays = Mapping[str, Array]
"""Arrays of an analysis: `map.0`, … and `shown.0`, …; lines from a token also have `places.0`, … and `query`."""

TILE, GAP, LINE = 104, 8, 18
"""Pixels: side of a sample, gap between two, height of a line of text."""
MAX_WORDS, WORD, WORD_LABEL = 16, 13, 76
"""Words per text; pixels per word, and of the words beside a map."""
MAX_SAMPLES, MAX_TEXTS = 4, 2
MAX_PIXELS = 160
LEVELS = 16
"""Shades of the lines from a token."""
ALPHA = 0.75


@dataclass(frozen=True)
class MapFigure:
    """An SVG drawing: its elements as tag, attributes and text, in a box of pixels."""

    caption: str
    description: str
    width: int
    height: int
    elements: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)


def strengths(arrays: Arrays) -> list[Array]:
    """Return the maps of the drawn samples: weights between words, others relative to uniform attention (1)."""
    maps = []
    for number in range(MAX_SAMPLES):
        if f"map.{number}" in arrays and f"shown.{number}" in arrays:
            weights = arrays[f"map.{number}"].astype(float)
            words = _is_text(arrays)
            maps.append(weights[:MAX_WORDS, :MAX_WORDS] if words else weights * weights.size)
    return [weights for weights in maps if weights.size][: MAX_TEXTS if _is_text(arrays) else MAX_SAMPLES]


def _is_text(arrays: Arrays) -> bool:
    return bool(arrays["shown.0"].dtype.kind == "U")


def draw_maps(name: str, caption: str, rows: Sequence[tuple[str, Arrays]], top: float) -> MapFigure:
    """Draw the samples, and below them the maps of each row.

    Args:
        name: prefix of the ids of elements.
        caption: heading of the drawing.
        rows: label and arrays of each row.
        top: end of the color scale, which starts at 0.
    """
    first = rows[0][1]
    texts, rays = _is_text(first), "places.0" in first
    colors = "plasma_r" if rays else "viridis"
    elements: list[tuple[str, dict[str, Any], str]] = []
    width, y = 0, 0
    if not texts:
        for number, _ in enumerate(strengths(first)):
            uri = _uri(first[f"shown.{number}"].squeeze(), MAX_PIXELS)
            box = {"width": TILE, "height": TILE, "href": uri, "id": f"{name}-{number}", "image-rendering": "pixelated"}
            elements.append(("image", {"x": number * (TILE + GAP), "y": LINE, **box}, ""))
        elements.append(_text(0, LINE - 6, "sample"))
        y = LINE + TILE + GAP
    for label, arrays in rows:
        elements.append(_text(0, y + LINE - 6, label))
        y, x, height = y + LINE, 0, TILE
        for number, weights in enumerate(strengths(arrays)):
            if texts:
                parts, side = _words(x, y, arrays[f"shown.{number}"], _shades(weights, top, colors))
                height, step = max(height if number else 0, side), side
            else:
                backdrop = {"href": f"#{name}-{number}", "y": y - LINE, "opacity": 0.45}
                elements.append(("use", backdrop, ""))
                parts, step = _over(x, y, number, arrays, weights, top, colors), TILE
            elements += parts
            x += step + GAP
            width = max(width, x)
        y += height + GAP
    unit = "" if texts else f" × {'tokens' if rays else 'patches'} (1: uniform)"
    elements += _color_bar(y, top, colors, f"attention weight{unit}{': row: query, column: key' if texts else ''}")
    description = f"Attention maps: {caption}: " + ", ".join(label for label, _ in rows)
    return MapFigure(caption, cut(description, 400), max(width, 300), y + 3 * LINE, elements)


def _over(
    x: int, y: int, number: int, arrays: Arrays, strength: Array, top: float, colors: str
) -> list[tuple[str, dict[str, Any], str]]:
    """Return a map over the patches of an image, or lines from the query to every token."""
    if strength.ndim == 2:
        shades = _shades(strength, top, colors)
        box = {"x": x, "y": y, "width": TILE, "height": TILE, "preserveAspectRatio": "none"}
        look = {"opacity": ALPHA, "image-rendering": "pixelated"}
        return [("image", {**box, **look, "href": _uri(shades)}, "")]
    height, width = arrays[f"shown.{number}"].shape[:2]
    places = arrays[f"places.{number}"] * (TILE / width, TILE / height) + (x, y)
    levels = np.clip(np.round(strength / top * LEVELS), 0, LEVELS).astype(int)
    start = places[int(arrays["query"])]
    origin = f"M{start[0]:.0f} {start[1]:.0f}L"
    parts: list[tuple[str, dict[str, Any], str]] = []
    for level in sorted({*levels.tolist()} - {0}):  # strong lines last
        path = "".join(f"{origin}{end[0]:.0f} {end[1]:.0f}" for end in places[levels == level])
        red, green, blue = _shades(np.array([level / LEVELS]), 1.0, colors)[0]
        style = {"stroke": f"rgb({red} {green} {blue})", "opacity": level / LEVELS, "fill": "none"}
        parts.append(("path", {"d": path, **style}, ""))
    return [*parts, ("circle", {"cx": int(start[0]), "cy": int(start[1]), "r": 3, "fill": "var(--ink)"}, "")]


def _words(x: int, y: int, words: Array, shades: Array) -> tuple[list[tuple[str, dict[str, Any], str]], int]:
    """Return a heat map between words with the words beside and above it, and its side in pixels."""
    count = len(shades)
    left, above = x + WORD_LABEL, y + WORD_LABEL
    box = {"x": left, "y": above, "width": WORD * count, "height": WORD * count}
    parts: list[tuple[str, dict[str, Any], str]] = [
        ("image", {**box, "href": _uri(shades), "image-rendering": "pixelated", "preserveAspectRatio": "none"}, "")
    ]
    for number, word in enumerate(words[:count]):
        middle = WORD * number + 10
        text = _short(str(word), 11)
        parts.append(_text(left - 4, above + middle, text, **{"text-anchor": "end", "font-size": 10}))
        turned = {"transform": f"rotate(-90 {left + middle} {above - 4})", "font-size": 10}
        parts.append(_text(left + middle, above - 4, text, **turned))
    return parts, WORD_LABEL + WORD * count


def _color_bar(y: int, top: float, colors: str, label: str) -> list[tuple[str, dict[str, Any], str]]:
    """Return the color scale with its ends and its label."""
    bar = _uri(_shades(np.linspace(0, 1, 64)[None], 1.0, colors))
    box = {"x": 0, "y": y + 4, "width": 240, "height": 10, "href": bar, "preserveAspectRatio": "none"}
    end = _text(240, y + 28, f"{top:.3g}", **{"text-anchor": "end"})
    uniform = [_text(240 / top, y + 28, "1", **{"text-anchor": "middle"})] if 1.2 < top < 12 else []
    return [("image", box, ""), _text(0, y + 28, "0"), *uniform, end, _text(0, y + 44, label)]


def _text(x: float, y: float, text: str, **attributes: Any) -> tuple[str, dict[str, Any], str]:
    return "text", {"x": round(x), "y": y, "font-size": 12, "fill": "var(--quiet)", **attributes}, _short(text, 64)


def _short(text: str, length: int) -> str:
    """Return text of at most `length` harmless characters."""
    text = plain(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _shades(strength: Array, top: float, colors: str) -> Array:
    """Return the colors (…, 3) of values on a scale from 0 to `top`."""
    from matplotlib import colormaps

    shades: Array = colormaps[colors](np.clip(strength / top, 0, 1), bytes=True)[..., :3]
    return shades


def _uri(pixels: Array, max_side: int | None = None) -> str:
    """Return an image (H, W) or (H, W, 3) as a data URI, at most `max_side` pixels wide and high."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels, np.uint8))
    if max_side is not None and max(image.size) > max_side:
        image.thumbnail((max_side, max_side))
        image = image.convert("RGB").quantize(64)
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
