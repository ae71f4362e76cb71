"""Test images with label maps: joint augmentation, and the maps' fingerprint in the trial."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from timm.data import auto_augment

from dropbench.harness.errors import InputError
from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data import locate
from dropbench.tasks.data.images.label_maps import FOLDER
from dropbench.tasks.images.augmentation import random_augment
from dropbench.tasks.images.image_classification import ImageClassification
from dropbench.tasks.images.token_labels import GEOMETRIC_OPS, label_map_transform, labels_from_maps
from tests.tasks.making import VOLO, task_of, trial_of

POLICY = "rand-m9-mstd0.5-inc1"


def trial(settings: Settings, **options: Any) -> Trial:
    return trial_of("image-classification", "imagenet", "volo-cifar", {**VOLO, **options}, settings)


def set_up(checked: Trial, settings: Settings) -> ImageClassification:
    return task_of(ImageClassification, checked, settings)


def generator_states() -> Any:
    """Return the states of the generators of Python and NumPy."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tolist(), state[2:]


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Add label maps of 6 × 6 cells to the generated images: class k has score 8 + r + c at row r and column c."""
    folder = tmp_path_factory.mktemp("imagenet")
    shutil.copytree(locate("imagenet-synthetic").folder, folder, dirs_exist_ok=True)
    cells = torch.arange(6.0)[:, None] + torch.arange(6.0)
    for label, class_folder in enumerate(sorted((folder / "train").iterdir())):
        (folder / FOLDER / class_folder.name).mkdir(parents=True)
        classes = torch.tensor([(label + offset) % 5 for offset in range(5)]).float()
        scores = torch.stack([8 + cells, *[torch.full((6, 6), 4.0 - rank) for rank in range(4)]])
        labels = torch.stack([scores, classes[:, None, None].expand(5, 6, 6)])
        for image in class_folder.iterdir():
            torch.save(labels.half(), folder / FOLDER / class_folder.name / f"{image.stem}.pt")
    return Settings(device="cpu", threads=1, folders={"imagenet": folder})


@pytest.mark.parametrize("interpolation", [None, "bicubic"])
def test_a_map_is_moved_like_its_image_by_randaugment(
    monkeypatch: pytest.MonkeyPatch, interpolation: str | None
) -> None:
    """Red and green encode the origin of each of 24 × 24 blocks; color operations are drawn but do nothing."""
    for name in set(auto_augment.NAME_TO_OP) - GEOMETRIC_OPS:
        monkeypatch.setitem(auto_augment.NAME_TO_OP, name, lambda image, *levels, **options: image)
    monkeypatch.setattr("dropbench.tasks.images.augmentation._posterize", lambda image, *levels, **options: image)
    side, size, num_moved = 24, 10, 0
    augment = random_augment(POLICY, size * side, torch.full((3,), 0.5), interpolation)
    transform = label_map_transform(POLICY, interpolation)
    numbers = torch.arange(side * side).reshape(side, side)
    labels = torch.stack([torch.ones(1, side, side), numbers[None].float()])
    marks = torch.stack([numbers % side * 11, numbers // side * 11, torch.zeros_like(numbers)]).byte()
    image = marks.repeat_interleave(size, 1).repeat_interleave(size, 2)
    for seed in range(60):
        seed_all(seed)
        moved_labels = transform(labels)
        state = generator_states()
        seed_all(seed)
        augmented = augment(image)
        assert generator_states() == state
        num_moved += not torch.equal(moved_labels, labels)
        centers = augmented[:, size // 2 :: size, size // 2 :: size].float()
        labeled, inside = moved_labels[0, 0] > 0, centers[2] == 0
        origin = torch.stack([moved_labels[1, 0] % side, moved_labels[1, 0] // side]) * 11
        near = (centers[:2] - origin).abs().amax(0) <= 13  # maps take the nearest block, images are interpolated
        assert near[labeled & inside].float().mean() > 0.97
        assert (labeled == inside).float().mean() > 0.93
    assert num_moved >= 15


def test_maps_are_flipped_with_their_images_and_crops_match_the_pixels(imagenet: Settings) -> None:
    task = set_up(trial(imagenet, image_size=32, token_labels="maps", resized_crop=True, flip=True), imagenet)
    assert task.views is not None
    task.views.augment = None
    columns = torch.arange(64, dtype=torch.uint8)[None, None].expand(3, 64, 64)
    cells = torch.arange(6.0)[None, None, None].expand(2, 1, 6, 6)
    num_flipped = 0
    for seed in range(20):
        seed_all(seed)
        image, labels, crop = task.views.view(columns * 4, cells)
        flipped = bool(labels[0, 0, 0, 0] == 5)
        num_flipped += flipped
        left, _, right, _ = crop.tolist()
        # Red is 4 · column, so the first and the last column of the crop give its edges.
        first, last = (image[0, 16, column].item() / 4 / 64 for column in (0, -1))
        if flipped:
            first, last = 1 - first, 1 - last
        assert abs(first - left) < 0.05
        assert abs(last - right) < 0.05
    assert 4 <= num_flipped <= 16


def test_a_batch_with_maps_trains_volo_and_leaves_evaluation_unchanged(imagenet: Settings) -> None:
    strong: dict[str, Any] = {
        "image_size": 32, "resized_crop": True, "randaugment": POLICY, "erase": 0.25, "label_smoothing": 0.1,
    }  # fmt: skip
    task = set_up(trial(imagenet, token_labels="maps", token_weight=0.5, **strong), imagenet)
    seed_all(0)
    pixels, (maps, crops) = task.batch("train", range(8))
    assert (pixels.shape, maps.shape, crops.shape) == ((8, 3, 32, 32), (8, 2, 5, 6, 6), (8, 4))
    assert task.num_loss_terms((pixels, (maps, crops))) == 8
    seed_all(0)
    again, (same, _) = task.batch("train", range(8))
    assert torch.equal(pixels, again)
    assert torch.equal(maps, same)
    plain = set_up(trial(imagenet, **strong), imagenet)
    assert all(map(torch.equal, task.batch("test", range(4)), plain.batch("test", range(4))))
    # The maps of class k have class k in most cells.
    whole, tokens = labels_from_maps(maps, crops, (8, 8), 5)
    assert (whole.argmax(1) == task.labels["train"][:8]).float().mean() >= 0.75
    assert tokens.shape == (8, 64, 5)
    model = task.build_model()
    loss = task.loss(model, (pixels, (maps, crops)))
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_maps_are_part_of_the_trial_and_changed_ones_are_refused(imagenet: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"
    shutil.copytree(imagenet.folders["imagenet"], folder)
    settings = Settings(device="cpu", threads=1, folders={"imagenet": folder})
    options: dict[str, Any] = {"image_size": 32, "resized_crop": True}
    with_maps = trial(settings, token_labels="maps", **options)
    assert len(with_maps.recipe["token_maps_fingerprint"]) == 16
    assert with_maps.id == trial(imagenet, token_labels="maps", **options).id
    extra = folder / FOLDER / "n1"
    extra.mkdir()
    torch.save(torch.zeros(2, 5, 6, 6), extra / "n1_1.pt")
    assert trial(settings, token_labels="maps", **options).id != with_maps.id
    with pytest.raises(InputError, match=r"the label maps in .* have changed since the trial was made"):
        set_up(with_maps, settings)
    shutil.rmtree(folder / FOLDER)
    with pytest.raises(InputError, match=f"no folder .*{FOLDER}"):
        trial(settings, token_labels="maps", **options)
    without = trial(settings, **options)
    assert not any(key.startswith("token") for key in without.recipe)
    assert without.id == trial(imagenet, **options).id
