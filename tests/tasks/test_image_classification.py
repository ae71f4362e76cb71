"""Image classification: preparation of images, augmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from harness.settings import Settings
from harness.task import TASKS
from harness.trial import TrialRequest
from tasks.image_classification import ImageClassification, augment


def make(data: str, model: str, **overrides: Any) -> ImageClassification:
    request = TrialRequest(task="image-classification", data=data, model=model, overrides=overrides)
    settings = Settings(device="cpu", threads=1)
    task = TASKS.get("image-classification")(ImageClassification.trial_for(request, settings), settings)
    assert isinstance(task, ImageClassification)
    task.setup()
    return task


@pytest.mark.parametrize(
    ("data", "model", "size"),
    [("digits", "vit-digits", 8), ("cifar10-synthetic", "vit-cifar", 32), ("cifar100-synthetic", "vit-cifar", 32)],
)
def test_training_images_have_mean_0_and_deviation_1(data: str, model: str, size: int) -> None:
    task = make(data, model, flip=False, crop_padding=0)
    pixels, labels = task.batch("train", range(task.size("train")))
    assert pixels.shape == (task.size("train"), task.recipe.channels, size, size)
    assert labels.dtype == torch.long
    torch.testing.assert_close(
        pixels.double().mean((0, 2, 3)), torch.zeros(task.recipe.channels).double(), atol=1e-3, rtol=0
    )
    torch.testing.assert_close(
        pixels.double().std((0, 2, 3)), torch.ones(task.recipe.channels).double(), atol=1e-2, rtol=0
    )


def test_evaluation_images_are_not_augmented() -> None:
    task = make("cifar10-synthetic", "vit-cifar", flip=True, crop_padding=4)
    first, second = (task.batch("test", range(8))[0] for _ in range(2))
    assert torch.equal(first, second)
    torch.manual_seed(0)
    first, second = (task.batch("train", range(8))[0] for _ in range(2))
    assert not torch.equal(first, second)


def test_images_of_folders_are_resized_and_cut_to_the_middle() -> None:
    task = make("imagenet-synthetic", "vit-tiny", image_size=64, **{"model.patch_size": 16})
    pixels, _ = task.batch("test", range(3))
    assert pixels.shape == (3, 3, 64, 64)
    image = torch.from_numpy(np.zeros((100, 50, 3), np.uint8) + np.arange(50, dtype=np.uint8)[None, :, None])
    fitted = task.fit(image, training=False)
    assert fitted.shape == (3, 64, 64)
    assert abs(float(fitted.double().mean()) - 24.5) < 0.5  # the middle of 0 … 49


def test_a_crop_is_the_image_moved_by_at_most_the_padding() -> None:
    torch.manual_seed(1)
    images = torch.arange(1, 2 * 3 * 5 * 5 + 1).view(2, 3, 5, 5).repeat(50, 1, 1, 1)
    moved = augment(images, padding=2, flip=False)
    padded = torch.nn.functional.pad(images, [2] * 4)
    seen = set()
    for image, result in zip(padded, moved, strict=True):
        places = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(image[:, top : top + 5, left : left + 5], result)
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 20


def test_half_of_the_images_are_mirrored() -> None:
    torch.manual_seed(1)
    images = torch.rand(1, 3, 4, 4).repeat(2000, 1, 1, 1)
    flipped = [torch.equal(image, images[0].flip(-1)) for image in augment(images, padding=0, flip=True)]
    assert all(
        flip or torch.equal(image, images[0]) for flip, image in zip(flipped, augment(images, 0, False), strict=True)
    )
    assert 900 < sum(flipped) < 1100
