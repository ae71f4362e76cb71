"""Detection of overlapping and clipped text in figures."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def flaws(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the visible texts of a figure that overlap or are clipped by its border."""
    boxes: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def draw_and_record(text: Text, renderer: Any) -> None:
        draw(text, renderer)
        if text.get_visible() and text.get_text():
            boxes.append((text.get_text(), text.get_window_extent(renderer)))

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()  # computes the layout
    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", draw_and_record)
        canvas.draw()
    assert boxes
    overlapping = [
        f"'{text}' over '{other}'"
        for (text, a), (other, b) in itertools.combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    page = figure.bbox.padded(1)
    inside = [(text, page.contains(*box.min) and page.contains(*box.max)) for text, box in boxes]
    return overlapping + [f"'{text}' clipped" for text, fits in inside if not fits]
