"""Folders of images: train/<class>/…, and val/<class>/… or test/<class>/…, as ImageNet is usually laid out.

Tiny-ImageNet's layout is read as published too: train/<class>/images/…, and val/images/… with the classes in
val/val_annotations.txt. Images are JPEG or PNG files; what else lies beside them is passed over, and counted.
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
    passed_over: list[Path] = []
    classes = _class_names(train_folder, passed_over)
    train = _class_folders(train_folder, classes, passed_over)
    if (test_folder / ANNOTATIONS).is_file():
        test = _annotated(test_folder, classes, passed_over)
    else:
        differing = sorted(set(classes) ^ set(_class_names(test_folder, passed_over)))
        if differing:
            where = train_folder if differing[0] in classes else test_folder
            raise InputError(
                f"{test_folder}: {len(differing)} class folders differ from those of {train_folder}: "
                f"'{differing[0]}' is in {where.name} only"
            )
        test = _class_folders(test_folder, classes, passed_over)
    kept, dev = carve_dev(train)
    notes = [noted("dev is 10 % of train"), f"test is {test_folder.name}"]
    if passed_over:
        first = passed_over[0].relative_to(source.folder)
        notes.append(f"passed over, being no images ({', '.join(SUFFIXES)}): {len(passed_over)}, the first is {first}")
    return ImageClassificationData(source.name, classes, kept, dev, test, tuple(notes))


def _class_names(folder: Path, passed_over: list[Path]) -> tuple[str, ...]:
    entries = sorted(_entries(folder), key=lambda entry: entry.name)
    names = tuple(entry.name for entry in entries if entry.is_dir())
    if not names:
        raise InputError(f"{folder}: no class folders: expected {folder.name}/<class>/<image>")
    passed_over.extend(folder / entry.name for entry in entries if not entry.is_dir())
    return names


def _class_folders(folder: Path, classes: tuple[str, ...], passed_over: list[Path]) -> ImageSplit:
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        below, others = name, list[Path]()
        images = _image_names(folder / below, others)
        if not images and (folder / name / "images").is_dir():
            below, others = f"{name}/images", []
            images = _image_names(folder / below, others)
        if not images:
            raise InputError(f"{folder / name}: no images: expected files ending in {', '.join(SUFFIXES)}")
        names.extend(f"{below}/{image}" for image in images)
        labels.extend([label] * len(images))
        passed_over += others
    return ImageSplit(FileImages.of(folder, names), np.array(labels, np.int64))


def _annotated(folder: Path, classes: tuple[str, ...], passed_over: list[Path]) -> ImageSplit:
    """Lines of file name, class, and a box that is not needed, parted by tabs: one for each image."""
    path = folder / ANNOTATIONS
    numbers = {name: number for number, name in enumerate(classes)}
    there = _image_names(folder / "images", passed_over)
    left = dict.fromkeys(there)
    names: list[str] = []
    labels: list[int] = []
    for number, line in enumerate(read_lines(path), 1):
        name, _, rest = line.partition("\t")
        label = rest.partition("\t")[0].strip()
        if label not in numbers:
            raise InputError(f"{path}:{number}: class '{label[:40]}' has no folder in train: expected 'file<tab>class'")
        # Also keeps a name with ".." or "/" from leading out of the folder: no such file is in the listing.
        if name not in left:
            told = "a second line for" if name in there else "no image"
            raise InputError(f"{path}:{number}: {told} '{name[:80]}' in {folder / 'images'}")
        del left[name]
        names.append(f"images/{name}")
        labels.append(numbers[label])
    if left:
        raise InputError(f"{path}: {len(names)} lines for {len(there)} images: '{next(iter(left))}' has no class")
    return ImageSplit(FileImages.of(folder, names), np.array(labels, np.int64))


def _image_names(folder: Path, passed_over: list[Path]) -> list[str]:
    """The images of a folder; what else is there is added to `passed_over`."""
    entries = sorted(_entries(folder), key=lambda entry: entry.name)
    images = [entry.name for entry in entries if entry.name.lower().endswith(SUFFIXES) and entry.is_file()]
    known = set(images)
    passed_over.extend(folder / entry.name for entry in entries if entry.name not in known)
    return images


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
