"""Images with label maps: the maps follow their images, and are part of the trial."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from timm.data import auto_augment

from harness.errors import InputError
from harness.seeding import seed_all
from harness.settings import Settings
from harness.trial import Trial, TrialRequest
from tasks.augmentation import random_augment
from tasks.data import locate
from tasks.data.label_maps import FOLDER
from tasks.image_classification import ImageClassification
from tasks.mapped_images import MOVES, followed
from tasks.token_labels import mapped_labels

POLICY = "rand-m9-mstd0.5-inc1"
SMALL = {"model.layers": "1,1", "model.embed_dim": 16, "model.num_heads": 2, "model.stem_dim": 4, "model.mlp_ratio": 1}


def trial(settings: Settings, **options: Any) -> Trial:
    request = TrialRequest(
        task="image-classification", data="imagenet", model="volo-cifar", overrides={**SMALL, **options}
    )
    made = ImageClassification.trial_for(request, settings)
    ImageClassification.check(made)
    return made


def task(made: Trial, settings: Settings) -> ImageClassification:
    ready = ImageClassification(made, settings)
    ready.setup()
    return ready


def drawn_from() -> Any:
    """Where the generators of Python and NumPy stand."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tolist(), state[2:]


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The generated image folders with label maps of 6 × 6 places: of class k, score 8 + r + c at row r, column c."""
    folder = tmp_path_factory.mktemp("imagenet")
    shutil.copytree(locate("imagenet-synthetic").folder, folder, dirs_exist_ok=True)
    places = torch.arange(6.0)[:, None] + torch.arange(6.0)
    for label, below in enumerate(sorted((folder / "train").iterdir())):
        (folder / FOLDER / below.name).mkdir(parents=True)
        classes = torch.tensor([(label + other) % 5 for other in range(5)]).float()
        scores = torch.stack([8 + places, *[torch.full((6, 6), 4.0 - other) for other in range(4)]])
        labels = torch.stack([scores, classes[:, None, None].expand(5, 6, 6)])
        for image in below.iterdir():
            torch.save(labels.half(), folder / FOLDER / below.name / f"{image.stem}.pt")
    return Settings(device="cpu", threads=1, folders={"imagenet": folder})


def test_a_map_follows_its_image_through_randaugment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red and green of an image say where each of its 24 × 24 blocks was; colours are drawn as ever, and left alone."""
    for name in set(auto_augment.NAME_TO_OP) - MOVES:
        monkeypatch.setitem(auto_augment.NAME_TO_OP, name, lambda image, *levels, **options: image)
    monkeypatch.setattr("tasks.augmentation._posterize", lambda image, *levels, **options: image)
    side, size, moved = 24, 10, 0
    augment, follow = random_augment(POLICY, size * side), followed(POLICY)
    numbers = torch.arange(side * side).reshape(side, side)
    labels = torch.stack([torch.ones(1, side, side), numbers[None].float()])
    marks = torch.stack([numbers % side * 11, numbers // side * 11, torch.zeros_like(numbers)]).byte()
    image = marks.repeat_interleave(size, 1).repeat_interleave(size, 2)
    for seed in range(60):
        seed_all(seed)
        changed = follow(labels)
        state = drawn_from()
        seed_all(seed)
        shown = augment(image)
        assert drawn_from() == state
        moved += not torch.equal(changed, labels)
        middles = shown[:, size // 2 :: size, size // 2 :: size].float()
        known, inside = changed[0, 0] > 0, middles[2] == 0
        came_from = torch.stack([changed[1, 0] % side, changed[1, 0] // side]) * 11
        near = (middles[:2] - came_from).abs().amax(0) <= 13  # the nearest block is taken, the image is interpolated
        assert near[known & inside].float().mean() > 0.97
        assert (known == inside).float().mean() > 0.93
    assert moved >= 15


def test_mirrored_images_have_mirrored_maps_and_crops_say_where_they_are(imagenet: Settings) -> None:
    made = trial(imagenet, image_size=32, token_labels="maps", resized_crop=True, flip=True)
    ready = task(made, imagenet)
    assert ready.mapped is not None
    ready.mapped.augment = None
    columns = torch.arange(64, dtype=torch.uint8)[None, None].expand(3, 64, 64)
    places = torch.arange(6.0)[None, None, None].expand(2, 1, 6, 6)
    mirrored = 0
    for seed in range(20):
        seed_all(seed)
        shown, labels, crop = ready.mapped.view(columns * 4, places)
        back = bool(labels[0, 0, 0, 0] == 5)
        mirrored += back
        left, _, right, _ = crop.tolist()
        # Red is 4 · column: the first and the last column of the crop are where its edges say.
        first, last = (shown[0, 16, place].item() / 4 / 64 for place in (0, -1))
        if back:
            first, last = 1 - first, 1 - last
        assert abs(first - left) < 0.05
        assert abs(last - right) < 0.05
    assert 4 <= mirrored <= 16


def test_a_batch_with_maps_trains_volo_and_evaluation_is_the_same_as_without(imagenet: Settings) -> None:
    strong: dict[str, Any] = {
        "image_size": 32,
        "resized_crop": True,
        "randaugment": POLICY,
        "erase": 0.25,
        "label_smoothing": 0.1,
    }
    ready = task(trial(imagenet, token_labels="maps", token_weight=0.5, **strong), imagenet)
    seed_all(0)
    pixels, (maps, crops) = ready.batch("train", range(8))
    assert (pixels.shape, maps.shape, crops.shape) == ((8, 3, 32, 32), (8, 2, 5, 6, 6), (8, 4))
    assert ready.weight((pixels, (maps, crops))) == 8
    seed_all(0)
    again, (same, _) = ready.batch("train", range(8))
    assert torch.equal(pixels, again)
    assert torch.equal(maps, same)
    plain = task(trial(imagenet, **strong), imagenet)
    for one, other in zip(ready.batch("test", range(4)), plain.batch("test", range(4)), strict=True):
        assert torch.equal(one, other)
    # What all the maps of class k say of most places: class k.
    whole, tokens = mapped_labels(maps, crops, (8, 8), 5)
    assert (whole.argmax(1) == ready.labels["train"][:8]).float().mean() >= 0.75
    assert tokens.shape == (8, 64, 5)
    model = ready.build_model()
    loss = ready.loss(model, (pixels, (maps, crops)))
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_maps_are_part_of_the_trial_and_are_looked_at_again(imagenet: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"
    shutil.copytree(imagenet.folders["imagenet"], folder)
    settings = Settings(device="cpu", threads=1, folders={"imagenet": folder})
    options: dict[str, Any] = {"image_size": 32, "resized_crop": True}
    made = trial(settings, token_labels="maps", **options)
    assert len(made.recipe["token_maps_fingerprint"]) == 12
    assert made.id == trial(imagenet, token_labels="maps", **options).id
    extra = folder / FOLDER / "n1"
    extra.mkdir()
    torch.save(torch.zeros(2, 5, 6, 6), extra / "n1_1.pt")
    assert trial(settings, token_labels="maps", **options).id != made.id
    with pytest.raises(InputError, match=r"the label maps in .* have changed since the trial was made"):
        task(made, settings)
    shutil.rmtree(folder / FOLDER)
    with pytest.raises(InputError, match=f"no folder .*{FOLDER}"):
        trial(settings, token_labels="maps", **options)
    without = trial(settings, **options)
    assert not any(key.startswith("token") for key in without.recipe)
    assert without.id == trial(imagenet, **options).id
