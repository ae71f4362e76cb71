"""Test token labeling: the loss re-derived token by token, labels from maps, invalid recipes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench.adapters.vision import volo
from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.images.image_classification import ImageClassification
from dropbench.tasks.images.spec import ImageRecipe
from dropbench.tasks.images.token_labels import labels_from_maps, roi_align_weights, token_label_loss
from tests.input_errors import one_line
from tests.training import assert_resumes, run

SMALL = {"model.layers": "1,1", "model.embed_dim": 16, "model.num_heads": 2, "model.stem_dim": 4, "model.mlp_ratio": 1}
SETTINGS = Settings(device="cpu", threads=1)


def trial(
    data: str = "cifar10-synthetic", model: str = "volo-cifar", settings: Settings = SETTINGS, **options: Any
) -> Trial:
    overrides = {**(SMALL if model.startswith("volo") else {}), **options}
    request = TrialRequest(task="image-classification", data=data, model=model, overrides=overrides)
    checked = ImageClassification.trial_for(request, settings)
    ImageClassification.check(checked)
    return checked


class ConstantModel(nn.Module):
    """A model that returns the given logits and records the box."""

    def __init__(self, classes: Tensor, tokens: Tensor) -> None:
        super().__init__()
        self.classes, self.tokens = classes, tokens

    def forward(self, images: Tensor, box: Any) -> tuple[Tensor, Tensor]:
        self.box = box
        return self.classes, self.tokens


def entropy(logits: Tensor, target: list[float]) -> float:
    """Return − Σ target · log softmax(logits), computed with Python's floats."""
    values: list[float] = logits.tolist()
    lse = math.log(sum(math.exp(value) for value in values))
    return -sum(share * (value - lse) for share, value in zip(target, values, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_that_of_the_mixed_class_token_plus_half_that_of_each_token(seed: int) -> None:
    """In a box of share s, image i of B shows image B − 1 − i, so that its label is mixed with weights 1 − s and s."""
    torch.manual_seed(seed)
    batch, rows, columns, classes, smoothing = 3, 4, 5, 6, 0.1
    model = ConstantModel(torch.randn(batch, classes).double(), torch.randn(batch, rows * columns, classes).double())
    labels = torch.tensor([4, 0, 2])
    recipe = ImageRecipe(epochs=1, token_labels="image", label_smoothing=smoothing)
    loss, _ = token_label_loss(model, torch.zeros(batch, 3, 8, 8), labels, (rows, columns), classes, recipe)
    top, left, bottom, right = model.box
    share = sum(top <= row < bottom and left <= column < right for row in range(rows) for column in range(columns))
    share /= rows * columns

    def smooth(label: int) -> list[float]:
        return [(1 - smoothing) * (label == index) + smoothing / classes for index in range(classes)]

    whole = tokens = 0.0
    for image in range(batch):
        own, mixed_in = smooth(int(labels[image])), smooth(int(labels[batch - 1 - image]))
        target = [(1 - share) * first + share * second for first, second in zip(own, mixed_in, strict=True)]
        whole += entropy(model.classes[image], target) / batch
        for token in range(rows * columns):
            tokens += entropy(model.tokens[image, token], own) / (batch * rows * columns)
    assert loss.item() == pytest.approx(whole + 0.5 * tokens, abs=1e-6)
    heavier = recipe.model_copy(update={"token_weight": 2.0})
    torch.manual_seed(seed)
    torch.randn(batch, classes).double(), torch.randn(batch, rows * columns, classes).double()
    again, _ = token_label_loss(model, torch.zeros(batch, 3, 8, 8), labels, (rows, columns), classes, heavier)
    assert again.item() == pytest.approx(whole + 2 * tokens, abs=1e-6)


def test_boxes_have_many_sizes_and_depend_on_the_seed() -> None:
    model = ConstantModel(torch.zeros(2, 3), torch.zeros(2, 64, 3))
    recipe = ImageRecipe(epochs=1, token_labels="image")

    def boxes() -> list[tuple[int, ...]]:
        seed_all(0)
        drawn = []
        for _ in range(40):
            token_label_loss(model, torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]), (8, 8), 3, recipe)
            drawn.append(model.box)
        return drawn

    assert boxes() == boxes()
    assert len(set(boxes())) > 20


def test_labels_come_from_the_scores_in_the_crop() -> None:
    """A crop of whole cells gives each token the softmax of its cell; classes beyond the K have score 0."""
    scores = torch.randn(1, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    classes = torch.stack([torch.full((4, 6), 3.0), torch.full((4, 6), 1.0)])[None]
    crop = torch.tensor([[2 / 6, 1 / 4, 5 / 6, 3 / 4]])  # columns 2, 3, 4 of rows 1, 2
    whole, tokens = labels_from_maps(torch.stack([scores, classes], 1), crop, (2, 3), 5)
    for row in range(2):
        for column in range(3):
            first, second = scores[0, :, row + 1, column + 2].exp().tolist()
            total = first + second + 3
            expected = torch.tensor([1 / total, second / total, 1 / total, first / total, 1 / total])
            torch.testing.assert_close(tokens[0, 3 * row + column], expected)
    # The whole crop has the mean score of its six cells (one sampling point at the center of each), else 0.
    means = torch.tensor(
        [0.0, *scores[0, [1], 1:3, 2:5].mean((1, 2)), 0.0, *scores[0, [0], 1:3, 2:5].mean((1, 2)), 0.0]
    )
    torch.testing.assert_close(whole[0], means.softmax(0))


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


def test_labels_of_maps_are_smoothed_as_in_the_authors_code() -> None:
    """Smoothed labels are label × (1 − s + s/K) + s/K, which sum to a little more than 1."""
    scores, classes = torch.full((2, 1, 3, 3), 2.0), torch.tensor([1.0, 0.0])[:, None, None, None].expand(2, 1, 3, 3)
    crops = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(2, 4)
    model = ConstantModel(torch.zeros(2, 4), torch.zeros(2, 4, 4))
    recipe = ImageRecipe(epochs=1, token_labels="maps", resized_crop=True, label_smoothing=0.2)
    maps = torch.stack([scores, classes], 1)
    loss, _ = token_label_loss(model, torch.zeros(2, 3, 8, 8), (maps, crops), (2, 2), 4, recipe)
    assert loss.item() == pytest.approx(1.5 * (1 + 0.2 / 4) * math.log(4))


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
        ({"model": "t2t-vit-cifar", "token_labels": "image"}, "model 't2t-vit-cifar' has no token labels"),
        ({"token_labels": "image", "mixup": 0.8}, "recipe: token_labels=image: tokens are mixed: expected mixup=0 and"),
        ({"token_labels": "image", "cutmix": 1.0}, "tokens are mixed: expected mixup=0 and cutmix=0"),
        ({"token_labels": "maps"}, "recipe: token_labels=maps: expected resized_crop=true and crop_padding=0"),
        ({"token_labels": "map"}, "token_labels=map: input should be 'image' or 'maps'"),
        ({"token_labels": "image", "token_weight": 0}, "token_weight=0: input should be greater than 0"),
        ({"token_label": "image"}, "unknown recipe key 'token_label': did you mean token_labels"),
    ],
)  # fmt: skip
def test_an_invalid_recipe_is_refused_before_a_trial_is_queued(fields: dict[str, Any], message: str) -> None:
    with one_line(message):
        trial(**fields)


def test_the_token_grid_is_that_of_self_attention() -> None:
    model = volo.build_volo("volo-d1", {"layers": "1,1"}, image_size=(32, 48), channels=3, classes=5)
    assert model.token_grid == (8, 12)
