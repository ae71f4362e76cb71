"""Measure images for training, from the file to the batch, against common pipelines, in one process each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from timm.data.mixup import Mixup
from timm.data.transforms_factory import create_transform
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from benchmarks.measure import Measurement, compare
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches, prefetch
from dropbench.harness.trials.trial import SYNTHETIC, TrialRequest
from dropbench.tasks.images.augmentation import posterize_to_black
from dropbench.tasks.images.image_classification import ImageClassification

CLASSES, PHOTOS, WIDTH, HEIGHT = 2, 40, 500, 375
"""Classes, photos of each, and their size in pixels, the most frequent one of ImageNet."""

STRONG: dict[str, Any] = {"randaugment": "rand-m9-mstd0.5-inc1", "erase": 0.25, "mixup": 0.8, "cutmix": 1.0}


def images() -> list[Measurement]:
    """Measure JPEG files with the augmentation of published recipes for ImageNet, and CIFAR in memory."""
    with TemporaryDirectory() as folder:
        photos(Path(folder))
        return [imagenet(Path(folder)), cifar()]


def imagenet(folder: Path) -> Measurement:
    """Measure 500 × 375 to 224 pixels: random resized crops, flips, RandAugment, random erasing, mixup or CutMix."""
    batch = 32
    overrides = {"batch_size": batch, "image_size": 224, "resized_crop": True, "flip": True, **STRONG}
    settings = Settings(folders={"imagenet": folder}, device="cpu", num_workers=0)
    task = prepared("imagenet", "vit-tiny", overrides, settings)
    transform = create_transform(
        224, is_training=True, auto_augment=STRONG["randaugment"], re_prob=STRONG["erase"], re_mode="pixel",
        interpolation="bilinear",
    )  # fmt: skip
    for part in transform.transforms:
        if hasattr(part, "ops"):
            posterize_to_black(part)
    alphas = {"mixup_alpha": STRONG["mixup"], "cutmix_alpha": STRONG["cutmix"]}
    mix: Any = Mixup(**alphas, label_smoothing=0.0, num_classes=CLASSES)  # type: ignore[no-untyped-call]
    loader = DataLoader(ImageFolder(str(folder / "train"), transform), batch, shuffle=True, drop_last=True)
    peer = (mix(*pair) for pair in repeated(loader))
    ours = our_batches(task, settings)
    return measured(f"{batch} JPEG files of {WIDTH} × {HEIGHT}, 224 pixels, augmented", ours, "timm's transforms", peer)


def cifar() -> Measurement:
    """Measure 32 pixels in memory: random crops of padded images, and flips."""
    batch = 128
    settings = Settings.from_environment(device="cpu", num_workers=0)
    real = (settings.data / "cifar100").is_dir()
    overrides = {"batch_size": batch, "flip": True, "crop_padding": 4}
    task = prepared("cifar100" if real else f"cifar100{SYNTHETIC}", "vit-cifar", overrides, settings)
    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(task.mean.tolist(), task.std.tolist()),
        ]
    )
    split: Any = task.splits["train"]
    loader = DataLoader(Arrays(split.images, transform), batch, shuffle=True, drop_last=True)
    name = f"{batch} images of {task.trial.data.name}, cropped and mirrored"
    return measured(name, our_batches(task, settings), "torchvision's transforms", repeated(loader))


def measured(name: str, ours: Iterator[Any], against: str, peer: Iterator[Any]) -> Measurement:
    """Measure a batch of each alternately."""
    return compare(
        name,
        lambda: next(ours),
        f"{against} in torch's DataLoader",
        lambda: next(peer),
        limit=1.0,
        rounds=15,
        detail={"threads": torch.get_num_threads(), "processes": 1},
    )


def prepared(data: str, model: str, overrides: dict[str, Any], settings: Settings) -> ImageClassification:
    """Return the task of a trial with that data."""
    request = TrialRequest(task="image-classification", data=data, model=model, overrides=overrides)
    task = ImageClassification(ImageClassification.trial_for(request, settings), settings)
    task.setup()
    return task


def our_batches(task: ImageClassification, settings: Settings) -> Iterator[Any]:
    """Yield batches as the engine reads them."""
    return prefetch(StepBatches(task, seed=0), range(1000), settings, torch.device("cpu"))


def repeated(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield the batches of a loader, epoch after epoch."""
    while True:
        yield from loader


class Arrays(Dataset[Any]):
    """Transform images in memory one by one, as torchvision's data sets do."""

    def __init__(self, pixels: NDArray[np.uint8], transform: Any) -> None:
        self.pixels, self.transform = pixels, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.fromarray(self.pixels[index])), 0


def photos(folder: Path) -> None:
    """Write train/<class>/ and val/<class>/ with files about as large as those of ImageNet."""
    random = np.random.RandomState(0)
    for split, number in (("train", PHOTOS), ("val", 1)):
        for label in range(CLASSES):
            below = folder / split / f"class_{label}"
            below.mkdir(parents=True)
            for count in range(number):
                Image.fromarray(clouds(random)).save(below / f"{count}.JPEG", quality=95)


def clouds(random: np.random.RandomState) -> NDArray[np.uint8]:
    """Return noise of many frequencies, with amplitudes that fall with the root of each: (HEIGHT, WIDTH, 3)."""
    total = np.full((HEIGHT, WIDTH, 3), 128.0)
    for cells in (4, 8, 16, 32, 64, 128, 256):
        noise = Image.fromarray(random.randint(0, 256, (cells * 3 // 4, cells, 3)).astype(np.uint8))
        total += (np.asarray(noise.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), float) - 128) * (4 / cells) ** 0.5
    return total.clip(0, 255).astype(np.uint8)
