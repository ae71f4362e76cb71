"""Attention maps of several models as one figure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dropbench.db.report.figures.maps import draw_maps, scale_end

IMAGE = np.zeros((8, 8, 1), np.uint8)
WEAK, STRONG = np.full((2, 2), 0.25), np.array([[0.7, 0.25], [0.05, 0.0]])


def color_bar(figure: Figure) -> Any:
    return figure.axes[-1]


def test_all_maps_have_one_color_scale() -> None:
    rows = [("weak", {"map.0": WEAK, "shown.0": IMAGE}), ("strong", {"map.0": STRONG, "shown.0": IMAGE})]
    top = scale_end(rows)
    assert top == pytest.approx(2.8)
    figure = draw_maps(rows, top)
    sample, weak, strong = figure.axes[:3]
    assert [axes.get_title("left") for axes in (sample, weak, strong)] == ["sample", "weak", "strong"]
    maps: list[Any] = [axes.images[-1] for axes in (weak, strong)]
    assert [image.get_clim() for image in maps] == [(0.0, top)] * 2
    assert [image.get_array().max() for image in maps] == pytest.approx([1.0, 2.8])
    assert color_bar(figure).get_ylabel() == "attention weight × patches (1: uniform)"


def test_words_stand_beside_their_map() -> None:
    words = np.array(["<b>", "a", "extraordinarily"])
    figure = draw_maps([("none", {"map.0": np.eye(3), "shown.0": words})], 1.0)
    for labels in (figure.axes[0].get_xticklabels(), figure.axes[0].get_yticklabels()):
        assert [label.get_text() for label in labels] == ["<b>", "a", "extraordinari…"]
    assert "row: query, column: key" in color_bar(figure).get_ylabel()


def test_lines_from_a_token_are_stronger_for_larger_weights() -> None:
    places = np.array([[0.0, 0.0], [8.0, 8.0], [4.0, 4.0]])
    arrays = {"map.0": np.array([0.0, 0.9, 0.1]), "shown.0": IMAGE, "places.0": places, "query": np.array(0)}
    figure = draw_maps([("none", arrays)], 2.7)
    lines: Any = figure.axes[1].collections[0]
    assert lines.get_edgecolor()[:, 3].tolist() == pytest.approx([0.0, 0.3 / 2.7, 1.0])


def test_only_the_first_samples_are_drawn() -> None:
    arrays = {f"{name}.{n}": value for n in range(5) for name, value in (("map", WEAK), ("shown", IMAGE))}
    assert len(draw_maps([("none", arrays)], 1.0, 2).axes) == 2 * 2 + 1
