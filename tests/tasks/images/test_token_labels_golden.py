"""Compare token labels with golden figures of the authors' code, which was run outside of this repository.

Each input is drawn from `numpy.random.RandomState(zlib.crc32(name))`. The golden figures of labels are five equidistant
elements from the first to the last, and the sum of all squares. The authors' RoI align was given the crop's edges in
the order that it expects (docs/tasks/image-classification.md).
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dropbench.tasks.images.spec import ImageRecipe
from dropbench.tasks.images.token_labels import labels_from_maps, token_label_loss
from tests.paths import GOLDEN_FILES

FILE = GOLDEN_FILES / "token_labels.json"
GOLDEN: dict[str, Any] = json.loads(FILE.read_text("utf-8"))["figures"]
BATCH, TOP_K, CLASSES, CELLS, SIDE, SMOOTHING = 4, 5, 10, 6, 4, 0.1
BOX, LABELS = (1, 0, 4, 2), (3, 0, 9, 5)


def draws(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def maps_and_crops() -> tuple[Tensor, Tensor]:
    scores = 8 + 2 * draws("scores").standard_normal((BATCH, TOP_K, CELLS, CELLS))
    classes = draws("numbers").random_sample((BATCH, CLASSES, CELLS, CELLS)).argsort(1)[:, :TOP_K]
    corner, size = 0.4 * draws("corner").random_sample((BATCH, 2)), 0.3 + 0.3 * draws("size").random_sample((BATCH, 2))
    maps = np.stack([scores, classes], axis=1)
    return torch.from_numpy(maps).float(), torch.from_numpy(np.concatenate([corner, corner + size], axis=1)).float()


class GoldenLogits(nn.Module):
    """A model whose logits of the class token and of all tokens are drawn like the other inputs."""

    def forward(self, images: Tensor, box: Any) -> tuple[Tensor, Tensor]:
        shapes = {"class": (BATCH, CLASSES), "tokens": (BATCH, SIDE * SIDE, CLASSES)}
        logits = [torch.from_numpy(2 * draws(name).standard_normal(shape)) for name, shape in shapes.items()]
        return logits[0], logits[1]


def figures(values: Tensor) -> list[float]:
    flat = values.double().flatten()
    indices = np.linspace(0, len(flat) - 1, 5).round().astype(int)
    return [*flat[indices].tolist(), flat.square().sum().item()]


def test_labels_of_maps() -> None:
    whole, tokens = labels_from_maps(*maps_and_crops(), (SIDE, SIDE), CLASSES)
    for name, shares in (("whole", whole), ("tokens", tokens)):
        smoothed = shares * (1 - SMOOTHING + SMOOTHING / CLASSES) + SMOOTHING / CLASSES
        assert figures(smoothed) == pytest.approx(GOLDEN[name], rel=1e-5)


@pytest.mark.parametrize("labels", ["image", "maps"])
def test_loss(monkeypatch: pytest.MonkeyPatch, labels: str) -> None:
    monkeypatch.setattr("dropbench.adapters.vision.volo.random_box", lambda rows, columns: BOX)
    recipe = ImageRecipe(epochs=1, token_labels=labels, resized_crop=True, label_smoothing=SMOOTHING)
    targets = torch.tensor(LABELS) if labels == "image" else maps_and_crops()
    loss, _ = token_label_loss(GoldenLogits(), torch.zeros(BATCH, 3, 8, 8), targets, (SIDE, SIDE), CLASSES, recipe)
    assert loss.item() == pytest.approx(GOLDEN[labels], rel=1e-6)
