"""Test image classification: preparation of images, augmentation, initial weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.transforms_factory import create_transform
from torchvision.transforms import Resize

from dropbench.harness.errors import InputError
from dropbench.harness.seeding import seed_all
from dropbench.tasks.images import augmentation
from dropbench.tasks.images.augmentation import erase_boxes
from dropbench.tasks.images.image_classification import ImageClassification
from tests.tasks.making import task_of, trial_of


def make(data: str, model: str, **overrides: Any) -> ImageClassification:
    return task_of(ImageClassification, trial_of("image-classification", data, model, overrides))


@pytest.mark.parametrize(
    ("data", "model", "size"), [("digits", "vit-digits", 8), ("cifar100-synthetic", "vit-cifar", 32)]
)
def test_training_images_have_mean_0_and_deviation_1(data: str, model: str, size: int) -> None:
    task = make(data, model, flip=False, crop_padding=0)
    pixels, labels = task.batch("train", range(task.size("train")))
    assert pixels.shape == (task.size("train"), task.recipe.channels, size, size)
    assert labels.dtype == torch.long
    channels = pixels.double().transpose(0, 1).flatten(1)
    assert channels.mean(1).abs().max() < 1e-3
    assert (channels.std(1) - 1).abs().max() < 1e-2


def test_images_of_folders_are_resized_and_center_cropped() -> None:
    task = make("imagenet-synthetic", "vit-tiny", image_size=64, **{"model.patch_size": 16})
    pixels, _ = task.batch("test", range(3))
    assert pixels.shape == (3, 3, 64, 64)
    image = torch.from_numpy(np.zeros((100, 50, 3), np.uint8) + np.arange(50, dtype=np.uint8)[None, :, None])
    fitted = task.fit(image, training=False)
    assert fitted.shape == (3, 64, 64)
    assert abs(float(fitted.double().mean()) - 24.5) < 0.5  # the middle of 0 … 49


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("share", "shorter"), [(None, 256), (0.9, 248), (0.96, 233), (1.0, 224)])
def test_the_central_crop_is_that_of_timms_evaluation(share: float | None, shorter: int, interpolation: str) -> None:
    options = {"center_crop": share, "interpolation": interpolation if interpolation == "bicubic" else None}
    task = make("imagenet-synthetic", "vit-tiny", **{key: value for key, value in options.items() if value is not None})
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    pipeline = create_transform(224, crop_pct=share, interpolation=interpolation, normalize=False)
    expected = pipeline(Image.fromarray(pixels)).float()
    (size,) = (part.size for part in pipeline.transforms if isinstance(part, Resize))
    assert size == shorter
    fitted = task.fit(torch.from_numpy(pixels), training=False).float()
    assert (fitted - expected).abs().max() <= (1 if interpolation == "bilinear" else 2)  # Pillow rounds differently


def test_boxes_are_erased_before_or_after_mixing() -> None:
    """A noisy box reaches another image of the batch only if it is mixed after erasing."""
    strong = {"erase": 1.0, "mixup": 0.8, "flip": False, "crop_padding": 0}
    changed = []
    for options in ({}, {"erase_first": True}):
        pixels: list[Any] = []
        for erase in (True, False):
            task = make("cifar10-synthetic", "vit-cifar", **strong, **options)
            seed_all(0)
            with pytest.MonkeyPatch.context() as patch:
                if not erase:  # the same draws, without their effect
                    patch.setattr(augmentation, "erase_boxes", lambda images, p, f=erase_boxes: f(images.clone(), p))
                pixels.append(task.batch("train", range(16))[0])
        changed.append((pixels[0] != pixels[1]).any(1).float().mean().item())
    assert changed[1] > 1.5 * changed[0]


def test_training_mixes_erases_and_augments_and_evaluation_does_not() -> None:
    strong = {"randaugment": "rand-m9-mstd0.5-inc1", "erase": 0.25, "mixup": 0.8, "cutmix": 1.0, "crop_padding": 4}
    task, plain = make("cifar10-synthetic", "vit-cifar", **strong), make("cifar10-synthetic", "vit-cifar")
    seed_all(0)
    images, shares = task.batch("train", range(8))
    assert images.shape == (8, 3, 32, 32)
    assert shares.shape == (8, 10)
    torch.testing.assert_close(shares.sum(1), torch.ones(8))
    seed_all(0)
    again, same = task.batch("train", range(8))
    assert torch.equal(images, again)
    assert torch.equal(shares, same)
    assert all(map(torch.equal, task.batch("test", range(8)), plain.batch("test", range(8))))
    model = task.build_model()
    assert torch.isfinite(task.loss(model, (images, shares)))
    hard = torch.nn.functional.one_hot(task.labels["train"][:8], 10).float()
    torch.manual_seed(0)
    torch.testing.assert_close(
        task.loss(model.eval(), (images, hard)), task.loss(model, (images, task.labels["train"][:8]))
    )


def test_boxes_are_erased_after_mixing_so_that_their_noise_is_not_mixed() -> None:
    task = make("cifar10-synthetic", "vit-cifar", erase=1.0, mixup=5.0)
    plain = make("cifar10-synthetic", "vit-cifar", mixup=5.0)
    seed_all(0)
    pixels, shares = task.batch("train", range(32))
    seed_all(0)
    mixed, same = plain.batch("train", range(32))
    assert torch.equal(shares, same)
    noise = pixels[pixels != mixed]
    assert len(noise) > 0.05 * pixels.numel()
    assert abs(float(noise.std()) - 1) < 0.03  # mixed with another image, that of 0.7


@pytest.mark.parametrize("policy", ["rand-9", "augmix-m3", "rand-m9-what"])
def test_an_unknown_policy_and_gray_images_are_refused(policy: str) -> None:
    with pytest.raises(InputError, match="expected timm's notation"):
        make("cifar10-synthetic", "vit-cifar", randaugment=policy)
    with pytest.raises(InputError, match="expected channels=3, not 1"):
        make("digits", "vit-digits", randaugment="rand-m9")


@pytest.mark.parametrize("model", ["t2t-vit-cifar", "volo-cifar", "vit-cifar"])
def test_a_trial_starts_from_the_weights_of_a_file(tmp_path: Path, model: str) -> None:
    options: dict[str, Any] = {"model.layers": "1,1"} if model == "volo-cifar" else {"model.depth": 2}
    pretrained = make("cifar100-synthetic", model, **options).build_model()
    path = tmp_path / "published.pt"
    torch.save({"state_dict": pretrained.state_dict()}, path)
    trial = trial_of("image-classification", "cifar10-synthetic", model, options, weights=str(path))
    task = task_of(ImageClassification, trial)
    state = task.build_model().state_dict()
    same = [name for name, value in pretrained.state_dict().items() if torch.equal(value, state[name])]
    assert {name.split(".")[0] for name in state if name not in same} <= {"head", "aux_head"}
    assert len(same) > len(state) / 2
    assert any("classifier is new: 100 classes in the file, 10 in the model" in note for note in task.notes)
