"""Measure images from the file to the batch, in seconds of one core, against the pipelines of the recipes' sources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
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
from benchmarks.training.engine import task_of
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches, prefetch
from dropbench.harness.trials.trial import SYNTHETIC
from dropbench.tasks.images.augmentation import posterize_to_black
from dropbench.tasks.images.image_classification import ImageClassification

CLASSES, PHOTOS, WIDTH, HEIGHT = 2, 40, 500, 375
"""Classes, photos of each, and their size in pixels, the most frequent one of ImageNet."""

STRONG: dict[str, Any] = {"randaugment": "rand-m9-mstd0.5-inc1", "erase": 0.25, "mixup": 0.8, "cutmix": 1.0}
FILES = f"JPEG files of {WIDTH} × {HEIGHT}, 224 pixels"
BATCH = 32


def images() -> list[Measurement]:
    """Measure JPEG files with the augmentation of published recipes for ImageNet, and CIFAR in memory."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a data loading process
    try:
        with TemporaryDirectory() as folder:
            photos(Path(folder))
            return [imagenet(Path(folder)), label_maps(Path(folder)), evaluation(Path(folder)), cifar()]
    finally:
        torch.set_num_threads(threads)


def imagenet(folder: Path) -> Measurement:
    """Measure T2T-ViT's recipe: random resized crops, flips, RandAugment, random erasing, mixup or CutMix."""
    task = prepared("imagenet", "vit-tiny", cropped(**STRONG), in_folder(folder))
    alphas = {"mixup_alpha": STRONG["mixup"], "cutmix_alpha": STRONG["cutmix"]}
    mix: Any = Mixup(**alphas, label_smoothing=0.0, num_classes=CLASSES)  # type: ignore[no-untyped-call]
    loader = DataLoader(ImageFolder(str(folder / "train"), training_transform()), BATCH, shuffle=True, drop_last=True)
    peer = (mix(*pair) for pair in repeated(loader))
    ours = our_batches(task, in_folder(folder))
    return measured(f"{BATCH} {FILES}, augmented", ours, "timm's transforms", peer)


def label_maps(folder: Path) -> Measurement:
    """Measure VOLO's recipe: label maps, which are augmented with the images here, and only read by the peer."""
    for path in (folder / "train").glob("*/*"):
        file = folder / "label_top5_train_nfnet" / path.parent.name / f"{path.stem}.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        scores, classes = torch.rand(5, 18, 18), torch.randint(CLASSES, (5, 18, 18))
        torch.save(torch.stack([scores, classes.float()]).half(), file)
    options = {name: STRONG[name] for name in ("randaugment", "erase")}
    task = prepared("imagenet", "volo-d1", cropped(token_labels="maps", **options), in_folder(folder))
    crop, flip, augment, *rest = training_transform().transforms
    transform = transforms.Compose([flip, augment, crop, *rest])  # the order of VOLO's authors
    loader: DataLoader[Any] = DataLoader(WithMaps(folder, transform), BATCH, shuffle=True, drop_last=True)
    against = "timm's transforms in the authors' order, and reading the maps,"
    name = f"{BATCH} {FILES}, augmented, with label maps"
    return measured(name, our_batches(task, in_folder(folder)), against, repeated(loader), limit=None)


def evaluation(folder: Path) -> Measurement:
    """Measure the central crop of evaluation."""
    task = prepared("imagenet", "vit-tiny", {"batch_size": BATCH, "interpolation": "bicubic"}, in_folder(folder))
    transform = create_transform(224, interpolation="bicubic", crop_pct=0.875)
    loader = DataLoader(ImageFolder(str(folder / "train"), transform), BATCH, shuffle=True, drop_last=True)
    order = torch.randperm(task.size("train")).tolist()
    ours = (task.batch("dev", [index % task.size("dev") for index in order[:BATCH]]) for _ in repeated(range(1)))
    return measured(f"{BATCH} {FILES}, of an evaluation", ours, "timm's transforms", repeated(loader))


def cropped(**options: Any) -> dict[str, Any]:
    """Return overrides for random resized crops and flips, with other options."""
    crops = {"resized_crop": True, "train_interpolation": "random", "flip": True}
    return {"batch_size": BATCH, "image_size": 224, **crops, **options}


def in_folder(folder: Path) -> Settings:
    """Return settings for ImageNet in a folder."""
    return Settings(folders={"imagenet": folder}, device="cpu", num_workers=0)


def training_transform() -> Any:
    """Return timm's training transform of T2T-ViT and VOLO."""
    transform = create_transform(
        224, is_training=True, auto_augment=STRONG["randaugment"], re_prob=STRONG["erase"], re_mode="pixel",
        interpolation="random",
    )  # fmt: skip
    for part in transform.transforms:
        if hasattr(part, "ops"):
            posterize_to_black(part)
    return transform


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


def measured(
    name: str, ours: Iterator[Any], against: str, peer: Iterator[Any], limit: float | None = 1.05
) -> Measurement:
    """Measure a batch of each alternately."""
    return compare(
        name,
        lambda: next(ours),
        f"{against} in torch's DataLoader",
        lambda: next(peer),
        limit=limit,
        rounds=15,
        clock=time.process_time,
        detail={"threads": torch.get_num_threads(), "processes": 1},
    )


def prepared(data: str, model: str, overrides: dict[str, Any], settings: Settings) -> ImageClassification:
    """Return the task of a trial with that data."""
    task: ImageClassification = task_of(
        settings, task="image-classification", data=data, model=model, overrides=overrides
    )
    return task


def our_batches(task: ImageClassification, settings: Settings) -> Iterator[Any]:
    """Yield batches as the engine reads them."""
    return prefetch(StepBatches(task, seed=0), range(1000), settings, torch.device("cpu"))


def repeated(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of a loader, epoch after epoch."""
    while True:
        yield from loader


class WithMaps(Dataset[Any]):
    """Images with their label maps, as the authors of VOLO read them."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.images = ImageFolder(str(folder / "train"), transform)
        self.maps = folder / "label_top5_train_nfnet"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        path = Path(self.images.samples[index][0])
        maps = torch.load(self.maps / path.parent.name / f"{path.stem}.pt", weights_only=True)
        return self.images[index][0], maps.float()


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
