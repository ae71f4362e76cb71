"""Test the augmentation of images: effects and frequencies of its parts."""

from __future__ import annotations

import math

import pytest
import torch
from PIL import Image
from timm.data.constants import IMAGENET_DEFAULT_MEAN
from timm.data.transforms_factory import create_transform
from torchvision.transforms.v2 import functional

from dropbench.harness.seeding import seed_all
from dropbench.tasks.images.augmentation import (
    erase_boxes,
    mixup_cutmix,
    normalize,
    posterize_to_black,
    random_augment,
    random_crop_flip,
    resized_crop,
)

MEAN = torch.tensor(IMAGENET_DEFAULT_MEAN)


def test_a_crop_is_the_image_shifted_by_at_most_the_padding() -> None:
    torch.manual_seed(1)
    images = torch.arange(1, 2 * 3 * 5 * 5 + 1).view(2, 3, 5, 5).repeat(50, 1, 1, 1)
    crops = random_crop_flip(images, padding=2, flip=False)
    padded = torch.nn.functional.pad(images, [2] * 4)
    distinct = set()
    for image, crop in zip(padded, crops, strict=True):
        offsets = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(image[:, top : top + 5, left : left + 5], crop)
        ]
        assert len(offsets) == 1
        distinct.add(offsets[0])
    assert len(distinct) > 20


def test_half_of_the_images_are_flipped() -> None:
    torch.manual_seed(1)
    images = torch.rand(1, 3, 4, 4).repeat(2000, 1, 1, 1)
    flipped = [torch.equal(image, images[0].flip(-1)) for image in random_crop_flip(images, padding=0, flip=True)]
    assert torch.equal(random_crop_flip(images, 0, False), images)
    assert 900 < sum(flipped) < 1100


def test_randaugment_changes_most_images_and_keeps_their_shape() -> None:
    seed_all(0)
    image = (torch.rand(3, 32, 32) * 255).to(torch.uint8)
    augment = random_augment("rand-m9-mstd0.5-inc1", 32, MEAN)
    augmented = [augment(image) for _ in range(40)]
    assert all(result.shape == image.shape and result.dtype == torch.uint8 for result in augmented)
    assert sum(not torch.equal(result, image) for result in augmented) > 20
    seed_all(0)
    torch.rand(3, 32, 32)
    again = [augment(image) for _ in range(40)]
    assert all(map(torch.equal, augmented, again))


@pytest.mark.parametrize("interpolation", ["random", "bicubic"])
def test_randaugment_equals_that_of_timms_pipeline_pixel_by_pixel(interpolation: str) -> None:
    """timm's pipeline is that of T2T-ViT and VOLO: it fills pixels from outside of an image with the mean color."""
    policy, size, num_filled = "rand-m9-mstd0.5-inc1", 64, 0
    pipeline = create_transform(size, is_training=True, auto_augment=policy, interpolation=interpolation)
    (theirs,) = (part for part in pipeline.transforms if type(part).__name__ == "RandAugment")
    posterize_to_black(theirs)
    augment = random_augment(policy, size, MEAN, interpolation)
    for seed in range(120):
        image = torch.randint(256, (3, size, size), generator=torch.manual_seed(seed)).to(torch.uint8)
        seed_all(seed)
        expected = functional.pil_to_tensor(theirs(functional.to_pil_image(image)))
        seed_all(seed)
        augmented = augment(image)
        assert torch.equal(augmented, expected)
        fill = torch.tensor([124, 116, 104])[:, None, None]
        num_filled += bool((augmented == fill).all(0).sum() > 20)
    assert num_filled > 20


@pytest.mark.parametrize("interpolation", [None, "bicubic", "random"])
def test_a_resized_crop_is_that_of_pillow(interpolation: str | None) -> None:
    """timm's pipelines crop and resize Pillow's images; `random` is bilinear for half of them."""
    noise = Image.effect_noise((75, 100), 80).convert("RGB").resize((400, 300), Image.Resampling.BICUBIC)
    modes = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    nearest: list[str] = []
    for seed in range(40):
        seed_all(seed)
        crop, (top, left, height, width) = resized_crop(functional.pil_to_tensor(noise), 64, interpolation)
        part = noise.crop((left, top, left + width, top + height))
        distances = {
            name: (functional.pil_to_tensor(part.resize((64, 64), mode)).int() - crop.int()).abs().max().item()
            for name, mode in modes.items()
        }
        name = min(distances, key=lambda each: distances[each])
        assert distances[name] <= 2  # torch and Pillow round differently
        nearest.append(name)
    if interpolation == "random":
        assert 8 < nearest.count("bicubic") < 32
    else:
        assert set(nearest) == {interpolation or "bilinear"}


def test_erased_boxes_have_the_sizes_of_timms_and_are_noise() -> None:
    torch.manual_seed(0)
    images = torch.full((2000, 1, 60, 60), 100.0)
    erase_boxes(images, 0.25)
    erased = images[(images != 100).any(1).flatten(1).any(1)]
    assert 420 < len(erased) < 580
    noise = erased[erased != 100]
    assert noise.mean().abs() < 0.01
    assert (noise.std() - 1).abs() < 0.01
    boxes = erased[:, 0] != 100
    heights, widths = boxes.any(2).sum(1), boxes.any(1).sum(1)
    areas, ratios = heights * widths / 60**2, (heights / widths).log()
    assert 0.015 < areas.min() < 0.03
    assert 0.31 < areas.max() < 0.345
    assert ratios.abs().max() < math.log(1 / 0.3) + 0.1
    # Uniform, but for boxes that do not fit into the image.
    assert abs(float(areas.mean()) - (0.02 + 1 / 3) / 2) < 0.015


@pytest.mark.parametrize("policy", ["rand-m10-mmax20-mstd9-inc1", "rand-m0", "rand-m10-n1-inc1"])
def test_a_policy_works_at_every_magnitude(policy: str) -> None:
    seed_all(0)
    image = (torch.rand(3, 8, 8) * 200 + 50).to(torch.uint8)
    augment = random_augment(policy, 8, MEAN)
    augmented = [augment(image) for _ in range(200)]
    assert all(each.shape == image.shape for each in augmented)
    assert policy != "rand-m10-n1-inc1" or any(not each.any() for each in augmented)  # posterized to no bits: black


def test_a_mixed_image_consists_of_its_classes_in_their_shares() -> None:
    classes = 5
    labels = torch.arange(4)
    pixels = labels[:, None, None, None].float().expand(4, 3, 16, 16).clone()
    for mixup, cutmix in ((0.8, 0.0), (0.0, 1.0), (0.8, 1.0)):
        torch.manual_seed(3)
        for _ in range(20):
            images, shares = mixup_cutmix(pixels.clone(), labels, classes, mixup, cutmix)
            torch.testing.assert_close(shares.sum(1), torch.ones(4))
            expected = (shares * torch.arange(classes)).sum(1)
            torch.testing.assert_close(images.mean((1, 2, 3)), expected, atol=1e-5, rtol=1e-5)
            assert len(images[1].unique()) <= (2 if not mixup else 256)
    single = mixup_cutmix(pixels[2:3], torch.tensor([2]), classes, 0.8, 1.0)
    assert torch.equal(single[0], pixels[2:3])


def test_normalized_images_equal_those_of_torchvision() -> None:
    pixels = (torch.rand(2, 3, 8, 8) * 256).to(torch.uint8)
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.1, 0.2, 0.3])
    expected = functional.normalize(functional.to_dtype(pixels, torch.float32, scale=True), mean.tolist(), std.tolist())
    torch.testing.assert_close(normalize(pixels, mean, std), expected)
