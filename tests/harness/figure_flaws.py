"""What makes a figure hard to read."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def flaws(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts of a figure that lie over each other, or are cut by its border; of those alone that are really drawn."""
    boxes: list[tuple[str, Bbox]] = []
    inner = Text.draw

    def noted(text: Text, renderer: Any) -> None:
        inner(text, renderer)
        if text.get_visible() and text.get_text():
            boxes.append((text.get_text(), text.get_window_extent(renderer)))

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()  # lays it out
    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", noted)
        canvas.draw()
    assert boxes
    found = [
        f"'{one}' over '{other}'"
        for (one, a), (other, b) in itertools.combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    page = figure.bbox.padded(1)
    return found + [f"'{text}' cut" for text, box in boxes if not (page.contains(*box.min) and page.contains(*box.max))]
