"""Folders of images: train/<class>/…, and val/<class>/… or test/<class>/…, as ImageNet is usually laid out.

Tiny-ImageNet's layout is read as published too: train/<class>/images/…, and val/images/… with the classes in
val/val_annotations.txt. Images are JPEG or PNG files; other files are passed over.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.errors import InputError
from tasks.data.classification import ImageClassificationData, ImageSplit
from tasks.data.lines import read_lines
from tasks.data.pixels import SUFFIXES, FileImages
from tasks.data.splits import carve_dev, noted

if TYPE_CHECKING:
    from tasks.data.locate import Source

ANNOTATIONS = "val_annotations.txt"


def read(source: Source) -> ImageClassificationData:
    """The published validation images are the test split, as no labels were published for the test images.

    Classes are numbered in the order of their folders' names.

    Raises:
        InputError: a class is missing in a split or has no images.
    """
    train_folder, test_folder = source.files
    classes = _class_names(train_folder)
    train = _class_folders(train_folder, classes)
    if (test_folder / ANNOTATIONS).is_file():
        test = _annotated(test_folder, classes)
    else:
        differing = sorted(set(classes) ^ set(_class_names(test_folder)))
        if differing:
            where = train_folder if differing[0] in classes else test_folder
            raise InputError(
                f"{test_folder}: {len(differing)} class folders differ from those of {train_folder}: "
                f"'{differing[0]}' is in {where.name} only"
            )
        test = _class_folders(test_folder, classes)
    kept, dev = carve_dev(train)
    notes = (noted("dev is 10 % of train"), f"test is {test_folder.name}")
    return ImageClassificationData(source.name, classes, kept, dev, test, notes)


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(sorted(entry.name for entry in _entries(folder) if entry.is_dir()))
    if not names:
        raise InputError(f"{folder}: no class folders: expected {folder.name}/<class>/<image>")
    return names


def _class_folders(folder: Path, classes: tuple[str, ...]) -> ImageSplit:
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        below = name
        images = _image_names(folder / below)
        if not images and (folder / name / "images").is_dir():
            below = f"{name}/images"
            images = _image_names(folder / below)
        if not images:
            raise InputError(f"{folder / name}: no images: expected files ending in {', '.join(SUFFIXES)}")
        names.extend(f"{below}/{image}" for image in images)
        labels.extend([label] * len(images))
    return ImageSplit(FileImages.of(folder, names), np.array(labels, np.int64))


def _annotated(folder: Path, classes: tuple[str, ...]) -> ImageSplit:
    """Lines of file name, class, and a box that is not needed, parted by tabs."""
    path = folder / ANNOTATIONS
    numbers = {name: number for number, name in enumerate(classes)}
    there = set(_image_names(folder / "images"))
    names: list[str] = []
    labels: list[int] = []
    for number, line in enumerate(read_lines(path), 1):
        name, _, rest = line.partition("\t")
        label = rest.partition("\t")[0].strip()
        if label not in numbers:
            raise InputError(f"{path}:{number}: class '{label[:40]}' has no folder in train: expected 'file<tab>class'")
        # Also keeps a name with ".." or "/" from leading out of the folder: no such file is in the listing.
        if name not in there:
            raise InputError(f"{path}:{number}: no image '{name[:80]}' in {folder / 'images'}")
        names.append(f"images/{name}")
        labels.append(numbers[label])
    return ImageSplit(FileImages.of(folder, names), np.array(labels, np.int64))


def _image_names(folder: Path) -> list[str]:
    return sorted(
        entry.name
        for entry in _entries(folder)
        if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file()
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
