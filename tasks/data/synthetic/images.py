"""Writers of synthetic images in the published formats: each class is a color pattern with shifts and noise."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from dropbench.tasks.data.classification import Labels, Pixels
from dropbench.tasks.data.dataset import Dataset
from dropbench.tasks.data.images.cifar import SIDE

CELLS = 4
NOISE = 30
FOLDER_CLASSES, FOLDER_ROWS, FOLDER_TEST_ROWS, FOLDER_SIDE = 5, 20, 5, 64


def _cifar(rows_per_class: tuple[int, int], coarse: bool, folder: Path, dataset: Dataset, seed: int) -> None:
    """Write records of one label byte, or a coarse and a fine one, and pixels plane by plane; and the class names."""
    *train, test, names = dataset.layouts[0].files
    for part, files in enumerate((train, [test])):
        labels, pixels = _images(dataset.classes, rows_per_class[part], SIDE, seed, part)
        planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        records = np.column_stack([*([labels // 5] if coarse else []), labels, planes]).astype(np.uint8)
        for index, name in enumerate(files):
            (folder / name).write_bytes(records[index :: len(files)].tobytes())
    (folder / names).write_text("".join(f"pattern_{number:02d}\n" for number in range(dataset.classes)))


cifar10 = partial(_cifar, (40, 10), False)
"""Write the binary version: 400 training and 100 test images."""
cifar100 = partial(_cifar, (10, 2), True)
"""Write the binary version: 1,000 training and 200 test images; five consecutive classes share a coarse label."""


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


def _jpeg(path: Path, image: Pixels) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, format="JPEG", quality=90)
