"""Attention maps of several models as one drawing."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from db.report.page.maps import LEVELS, MapFigure, draw_maps, strengths

IMAGE = np.zeros((8, 8, 1), np.uint8)
WEAK, STRONG = np.full((2, 2), 0.25), np.array([[0.7, 0.25], [0.05, 0.0]])


def pixels(drawing: MapFigure, opacity: float | None) -> list[Any]:
    """Return the pixels of the images of an opacity."""
    images = [values for tag, values, _ in drawing.elements if tag == "image" and values.get("opacity") == opacity]
    uris = [values["href"].partition(",")[2] for values in images]
    return [np.array(Image.open(BytesIO(base64.b64decode(uri)))) for uri in uris]


def texts(drawing: MapFigure) -> list[str]:
    return [text for tag, _, text in drawing.elements if tag == "text"]


def test_all_maps_have_one_color_scale() -> None:
    rows = [("weak", {"map.0": WEAK, "shown.0": IMAGE}), ("strong", {"map.0": STRONG, "shown.0": IMAGE})]
    top = max(float(weights.max()) for _, arrays in rows for weights in strengths(arrays))
    assert top == pytest.approx(2.8)
    drawing = draw_maps("map", "TREC", rows, top)
    weak, strong = pixels(drawing, 0.75)
    assert (weak == strong[0, 1]).all()  # equal weights have equal colors
    bar = pixels(drawing, None)[-1]
    assert (bar[0, -1] == strong[0, 0]).all()
    assert (bar[0, 0] == strong[1, 1]).all()
    assert texts(drawing) == ["sample", "weak", "strong", "0", "1", "2.8", "attention weight × patches (1: uniform)"]


def test_words_stand_beside_their_map() -> None:
    words = np.array(["<b>", "a", "extraordinarily"])
    drawing = draw_maps("map", "TREC", [("none", {"map.0": np.eye(3), "shown.0": words})], 1.0)
    assert texts(drawing)[:7] == ["none", "<b>", "<b>", "a", "a", *2 * ["extraordin…"]]
    assert "row: query, column: key" in texts(drawing)[-1]


def test_lines_from_a_token_are_stronger_for_larger_weights() -> None:
    places = np.array([[0.0, 0.0], [8.0, 8.0], [4.0, 4.0]])
    arrays = {"map.0": np.array([0.0, 0.9, 0.1]), "shown.0": IMAGE, "places.0": places, "query": np.array(0)}
    paths = [values for tag, values, _ in draw_maps("map", "joints", [("none", arrays)], 2.7).elements if tag == "path"]
    assert [path["opacity"] for path in paths] == [round(0.3 / 2.7 * LEVELS) / LEVELS, 1.0]
    assert paths[1]["d"].endswith("L104 252")
