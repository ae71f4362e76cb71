"""Token labels: golden figures of the authors' code, which was run outside of this repository, trials, invalid recipes.

Each input is drawn from `numpy.random.RandomState(zlib.crc32(name))`. The golden figures of labels are five equidistant
elements from the first to the last, and the sum of all squares. The authors' RoI align was given the crop's edges in
the order that it expects (docs/tasks/image-classification.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dropbench.harness.trials.trial import Trial
from dropbench.tasks.images.spec import ImageRecipe
from dropbench.tasks.images.token_labels import labels_from_maps, roi_align_weights, token_label_loss
from tests.golden.figures import draws, picked
from tests.input_errors import one_line
from tests.paths import GOLDEN_FILES
from tests.tasks.making import VOLO, trial_of
from tests.training import assert_resumes, run

FILE = GOLDEN_FILES / "token_labels.json"
GOLDEN: dict[str, Any] = json.loads(FILE.read_text("utf-8"))["figures"]
BATCH, TOP_K, CLASSES, CELLS, SIDE, SMOOTHING = 4, 5, 10, 6, 4, 0.1
BOX, LABELS = (1, 0, 4, 2), (3, 0, 9, 5)


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


def test_labels_of_maps() -> None:
    whole, tokens = labels_from_maps(*maps_and_crops(), (SIDE, SIDE), CLASSES)
    for name, shares in (("whole", whole), ("tokens", tokens)):
        smoothed = shares * (1 - SMOOTHING + SMOOTHING / CLASSES) + SMOOTHING / CLASSES
        values, squares = picked(smoothed, rounded=True)[:-1], smoothed.double().square().sum().item()
        assert [*values, squares] == pytest.approx(GOLDEN[name], rel=1e-5)


@pytest.mark.parametrize("labels", ["image", "maps"])
def test_loss(monkeypatch: pytest.MonkeyPatch, labels: str) -> None:
    monkeypatch.setattr("dropbench.adapters.vision.volo.random_box", lambda rows, columns: BOX)
    recipe = ImageRecipe(epochs=1, token_labels=labels, resized_crop=True, label_smoothing=SMOOTHING)
    targets = torch.tensor(LABELS) if labels == "image" else maps_and_crops()
    loss, heavier, heaviest = (
        token_label_loss(
            GoldenLogits(), torch.zeros(BATCH, 3, 8, 8), targets, (SIDE, SIDE), CLASSES,
            recipe.model_copy(update={"token_weight": weight}),
        )[0].item()
        for weight in (recipe.token_weight, 1.0, 2.0)
    )  # fmt: skip
    assert loss == pytest.approx(GOLDEN[labels], rel=1e-6)
    assert heaviest - heavier == pytest.approx(2 * (heavier - loss))
    assert heaviest > heavier > loss


def trial(data: str = "cifar10-synthetic", model: str = "volo-cifar", **options: Any) -> Trial:
    return trial_of("image-classification", data, model, {**(VOLO if model.startswith("volo") else {}), **options})


def test_weights_of_cells_equal_those_of_roi_align() -> None:
    """Check by hand [0.75, 3.75] of 4 cells in 2 bins of 1.5 cells with two sampling points each."""
    weights = roi_align_weights(torch.tensor([0.75 / 4]), torch.tensor([3.75 / 4]), bins=2, cells=4)
    # Points at 1.125, 1.875, 2.625, 3.375; centers of cells at 0.5, 1.5, 2.5, 3.5.
    expected = [[0.375 / 2, (0.625 + 0.625) / 2, 0.375 / 2, 0.0], [0.0, 0.0, (0.875 + 0.125) / 2, (0.125 + 0.875) / 2]]
    torch.testing.assert_close(weights[0], torch.tensor(expected))
    several = roi_align_weights(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.6]), bins=14, cells=18)
    torch.testing.assert_close(several.sum(2), torch.ones(2, 14))
    # Beyond the center of the last cell there is nothing to interpolate with: the weight is all of that cell.
    assert roi_align_weights(torch.zeros(1), torch.ones(1), 8, 2)[0, 0].tolist() == [1.0, 0.0]


def test_a_run_with_token_labels_resumes_bit_for_bit(tmp_path: Path) -> None:
    labeled = trial("digits", image_size=8, channels=1, token_labels="image", steps=4, batch_size=16, evaluate_every=4)
    whole = assert_resumes(tmp_path, labeled)
    plain = labeled.model_copy(update={"recipe": {k: v for k, v in labeled.recipe.items() if k != "token_labels"}})
    plain_result = run(tmp_path / "plain", plain)
    assert plain_result["metrics"]["train/loss"] != whole["metrics"]["train/loss"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "vit-cifar", "token_labels": "image"}, "token_labels=image: model 'vit-cifar' has no token "
         "labels: expected volo-cifar, volo-d1, volo-d2, volo-d3"),
        ({"token_labels": "image", "mixup": 0.8}, "recipe: token_labels=image: tokens are mixed: expected mixup=0 and"),
        ({"token_labels": "maps"}, "recipe: token_labels=maps: expected resized_crop=true and crop_padding=0"),
    ],
)  # fmt: skip
def test_an_invalid_recipe_is_refused_before_a_trial_is_queued(fields: dict[str, Any], message: str) -> None:
    with one_line(message):
        trial(**fields)
