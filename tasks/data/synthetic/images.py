"""Writers of synthetic images in the published formats: each class is a color pattern with shifts and noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tasks.data.classification import Labels, Pixels
from tasks.data.dataset import Dataset
from tasks.data.images.cifar import SIDE

CELLS = 4
NOISE = 30
FOLDER_CLASSES, FOLDER_ROWS, FOLDER_TEST_ROWS, FOLDER_SIDE = 5, 20, 5, 64


def cifar10(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write the binary version: 400 training and 100 test images."""
    *train, test, names = dataset.layouts[0].files
    for part, (files, rows_per_class) in enumerate(((train, 40), ([test], 10))):
        labels, pixels = _images(dataset.classes, rows_per_class, SIDE, seed, part)
        for index, name in enumerate(files):
            rows = slice(index, None, len(files))
            _records(folder / name, labels[rows, None], pixels[rows])
    _names(folder / names, dataset.classes)


def cifar100(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write the binary version: 1,000 training and 200 test images; five consecutive classes share a coarse label."""
    train, test, names = dataset.layouts[0].files
    for part, (name, rows_per_class) in enumerate(((train, 10), (test, 2))):
        labels, pixels = _images(dataset.classes, rows_per_class, SIDE, seed, part)
        _records(folder / name, np.stack([labels // 5, labels], axis=1), pixels)
    _names(folder / names, dataset.classes)


def image_folders(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write train/<class>/ and val/<class>/ with JPEG files, five classes of 64x64 pixels."""
    for part, split in enumerate(("train", "val")):
        for number, (name, image) in enumerate(_folder_images(seed, part)):
            _jpeg(folder / split / name / f"{name}_{number}.JPEG", image)


def tiny_imagenet(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write train/<class>/images/, and val/images/ with val_annotations.txt, the layout of the archive."""
    for number, (name, image) in enumerate(_folder_images(seed, 0)):
        _jpeg(folder / "train" / name / "images" / f"{name}_{number}.JPEG", image)
    lines = []
    for number, (name, image) in enumerate(_folder_images(seed, 1)):
        _jpeg(folder / "val" / "images" / f"val_{number}.JPEG", image)
        lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t{FOLDER_SIDE - 1}\t{FOLDER_SIDE - 1}\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


def _images(classes: int, rows_per_class: int, side: int, seed: int, part: int) -> tuple[Labels, Pixels]:
    """Return shuffled labels (N,) and images (N, side, side, 3); `part` distinguishes train and test."""
    patterns = np.random.RandomState([seed, 1000]).randint(0, 256, (classes, CELLS, CELLS, 3))
    patterns = patterns.repeat(side // CELLS, axis=1).repeat(side // CELLS, axis=2)
    random = np.random.RandomState([seed, part])
    labels = random.permutation(np.repeat(np.arange(classes), rows_per_class)).astype(np.int64)
    max_shift = side // 16
    shifted = [
        np.roll(patterns[label], random.randint(-max_shift, max_shift + 1, 2).tolist(), axis=(0, 1))
        for label in labels.tolist()
    ]
    noise = random.randint(-NOISE, NOISE + 1, (len(labels), side, side, 3))
    return labels, np.clip(np.stack(shifted) + noise, 0, 255).astype(np.uint8)


def _folder_images(seed: int, part: int) -> list[tuple[str, Pixels]]:
    """Return images with the folder names of their classes."""
    rows_per_class = FOLDER_TEST_ROWS if part else FOLDER_ROWS
    labels, pixels = _images(FOLDER_CLASSES, rows_per_class, FOLDER_SIDE, seed, part)
    return [(f"n{90000000 + label}", image) for label, image in zip(labels.tolist(), pixels, strict=True)]


def _records(path: Path, labels: Labels, pixels: Pixels) -> None:
    """Write records of label bytes, (N, 1) or (N, 2), and pixels plane by plane."""
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    path.write_bytes(np.concatenate([labels.astype(np.uint8), planes], axis=1).tobytes())


def _names(path: Path, classes: int) -> None:
    path.write_text("".join(f"pattern_{number:02d}\n" for number in range(classes)))


def _jpeg(path: Path, image: Pixels) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, format="JPEG", quality=90)
