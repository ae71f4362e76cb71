"""Labels of tokens held beside their authors' code, run outside of this repository with inputs made by the rule below.

Each input is drawn from `numpy.random.RandomState(zlib.crc32(name))`. Of labels five elements at equal distances from
the first to the last are kept, and the sum of all squares. Their RoI align was given the crop's edges in the order that
it takes (docs/image-models.md).
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tasks.outlines.images import ImageRecipe
from tasks.token_labels import mapped_labels, token_label_loss

FILE = Path(__file__).parents[1] / "golden" / "token_labels.json"
GOLDEN: dict[str, Any] = json.loads(FILE.read_text("utf-8"))["figures"]
BATCH, LARGEST, CLASSES, PLACES, SIDE, SMOOTHING = 4, 5, 10, 6, 4, 0.1
BOX, LABELS = (1, 0, 4, 2), (3, 0, 9, 5)


def draws(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def maps_and_crops() -> tuple[Tensor, Tensor]:
    scores = 8 + 2 * draws("scores").standard_normal((BATCH, LARGEST, PLACES, PLACES))
    classes = draws("numbers").random_sample((BATCH, CLASSES, PLACES, PLACES)).argsort(1)[:, :LARGEST]
    corner, size = 0.4 * draws("corner").random_sample((BATCH, 2)), 0.3 + 0.3 * draws("size").random_sample((BATCH, 2))
    maps = np.stack([scores, classes], axis=1)
    return torch.from_numpy(maps).float(), torch.from_numpy(np.concatenate([corner, corner + size], axis=1)).float()


class Said(nn.Module):
    """Logits of the class token and of all tokens, by the rule."""

    def forward(self, images: Tensor, box: Any) -> tuple[Tensor, Tensor]:
        shapes = {"class": (BATCH, CLASSES), "tokens": (BATCH, SIDE * SIDE, CLASSES)}
        found = [torch.from_numpy(2 * draws(name).standard_normal(shape)) for name, shape in shapes.items()]
        return found[0], found[1]


def kept(values: Tensor) -> list[float]:
    flat = values.double().flatten()
    places = np.linspace(0, len(flat) - 1, 5).round().astype(int)
    return [*flat[places].tolist(), flat.square().sum().item()]


def test_labels_of_maps() -> None:
    whole, tokens = mapped_labels(*maps_and_crops(), (SIDE, SIDE), CLASSES)
    for name, shares in (("whole", whole), ("tokens", tokens)):
        smoothed = shares * (1 - SMOOTHING + SMOOTHING / CLASSES) + SMOOTHING / CLASSES
        assert kept(smoothed) == pytest.approx(GOLDEN[name], rel=1e-5)


@pytest.mark.parametrize("labels", ["image", "maps"])
def test_loss(monkeypatch: pytest.MonkeyPatch, labels: str) -> None:
    monkeypatch.setattr("adapters.volo.random_box", lambda rows, columns: BOX)
    recipe = ImageRecipe(epochs=1, token_labels=labels, resized_crop=True, label_smoothing=SMOOTHING)
    given = torch.tensor(LABELS) if labels == "image" else maps_and_crops()
    loss = token_label_loss(Said(), torch.zeros(BATCH, 3, 8, 8), given, (SIDE, SIDE), CLASSES, recipe)
    assert loss.item() == pytest.approx(GOLDEN[labels], rel=1e-6)
