"""Reader of image folders: train/<class>/…, and val/<class>/… or test/<class>/…, the usual layout of ImageNet.

Tiny-ImageNet's published layout is read, too: train/<class>/images/…, and val/images/… with the classes in
val/val_annotations.txt. Images are JPEG or PNG files; other files are skipped and counted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dropbench.harness.errors import InputError, check_text
from dropbench.tasks.data.classification import ImageClassificationData, ImageSplit
from dropbench.tasks.data.images.image_arrays import SUFFIXES, FileImages
from dropbench.tasks.data.images.image_index import SPLITS, ImageIndex, ImageList, read_indexed
from dropbench.tasks.data.lines import read_lines
from dropbench.tasks.data.locate import Source

ANNOTATIONS = "val_annotations.txt"


def read(source: Source) -> ImageClassificationData:
    """Read both folders. The published validation images are test, as no labels of test images were published.

    Classes are numbered in the order of their folder names.

    Raises:
        InputError: a class is missing in a split or has no images.
    """
    folders = dict(zip(SPLITS, source.files, strict=True))

    def images(listed: ImageList, split: str) -> FileImages:
        return FileImages.of(folders[split], listed.names)

    return read_indexed(source, lambda: list_images(source), images, [f"test is {folders['test'].name}"])


def list_images(source: Source) -> ImageIndex:
    """List the images of both folders; raise as `read`."""
    train_folder, test_folder = source.files
    skipped: list[Path] = []
    classes = class_names(train_folder, skipped)
    train = class_folders(train_folder, classes, skipped)
    if (test_folder / ANNOTATIONS).is_file():
        test = annotated_images(test_folder, classes, skipped)
    else:
        test_classes = class_names(test_folder, skipped)
        if test_classes == ("images",) != classes:
            raise InputError(f"{test_folder / ANNOTATIONS}: no such file: expected it, or a folder per class")
        differences = sorted(set(classes) ^ set(test_classes))
        if differences:
            folder_with_it = train_folder if differences[0] in classes else test_folder
            raise InputError(
                f"{test_folder}: {len(differences)} class folders differ from those of {train_folder}: "
                f"'{differences[0]}' is in {folder_with_it.name} only: expected the same classes in both"
            )
        test = class_folders(test_folder, classes, skipped)
    first = str(skipped[0].relative_to(source.folder)) if skipped else ""
    return ImageIndex(classes, train, test, (len(skipped), first))


def class_names(folder: Path, skipped: list[Path]) -> tuple[str, ...]:
    """Return the sorted names of the class folders, and append other entries to `skipped`.

    Raises:
        InputError: there are none, or a name is not UTF-8.
    """
    entries = _entries(folder)
    names = tuple(entry.name for entry in entries if entry.is_dir())
    if not names:
        raise InputError(f"{folder}: no class folders: expected {folder.name}/<class>/<image>")
    for name in names:
        check_text(name, f"{folder}: class folder")
    skipped.extend(folder / entry.name for entry in entries if not entry.is_dir())
    return names


def class_folders(folder: Path, classes: tuple[str, ...], skipped: list[Path]) -> ImageList:
    """Return the images of the class folders that are there, and append other files to `skipped`."""
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue
        subfolder, not_images = name, list[Path]()
        images = _image_names(folder / subfolder, not_images)
        if not images and (folder / name / "images").is_dir():
            subfolder, not_images = f"{name}/images", []
            images = _image_names(folder / subfolder, not_images)
        if not images:
            inner = next((f" (but a folder {path.name}, not read)" for path in not_images if path.is_dir()), "")
            raise InputError(f"{folder / name}: no images{inner}: expected files ending in {', '.join(SUFFIXES)}")
        names.extend(f"{subfolder}/{image}" for image in images)
        labels.extend([label] * len(images))
        skipped += not_images
    return image_list(names, labels)


def annotated_images(folder: Path, classes: tuple[str, ...], skipped: list[Path]) -> ImageList:
    """Read val_annotations.txt: one line per image with file name, class, and a box, which is ignored, between tabs."""
    path = folder / ANNOTATIONS
    label_of_class = {name: label for label, name in enumerate(classes)}
    images = dict.fromkeys(_image_names(folder / "images", skipped))
    labels: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), 1):
        name, _, rest = line.partition("\t")
        class_name = rest.partition("\t")[0].strip()
        if class_name not in label_of_class:
            raise InputError(f"{path}:{number}: no class '{class_name[:40]}' in train: expected 'file<tab>class'")
        # This also rejects a name with ".." or "/" that would escape the folder: the listing has no such file.
        if name in labels or name not in images:
            problem = "second line for" if name in images else "no image"
            raise InputError(f"{path}:{number}: {problem} '{name[:80]}': expected a line per file of images/")
        labels[name] = label_of_class[class_name]
    if unlabeled := [name for name in images if name not in labels]:
        raise InputError(f"{path}: {len(labels)} lines for {len(images)} images: no class for '{unlabeled[0]}'")
    return image_list([f"images/{name}" for name in labels], [*labels.values()])


def file_split(folder: Path, listed: ImageList) -> ImageSplit:
    """Return the images of a list, in files below a folder."""
    return ImageSplit(FileImages.of(folder, listed.names), listed.labels)


def image_list(names: Sequence[str], labels: Sequence[int]) -> ImageList:
    """Return the list of files with those names and labels."""
    encoded = np.array([os.fsencode(name) for name in names], np.bytes_)
    return ImageList(encoded, np.array(labels, np.int64), np.empty((0, 3), np.int64))


def _image_names(folder: Path, skipped: list[Path]) -> list[str]:
    """Return the image names of a folder, and append its other entries to `skipped`."""
    entries = _entries(folder)
    images = [entry.name for entry in entries if entry.name.lower().endswith(SUFFIXES) and entry.is_file()]
    image_set = set(images)
    skipped.extend(folder / entry.name for entry in entries if entry.name not in image_set)
    return images


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
            for entry in visible:
                entry.is_dir()  # raises OSError for a link that leads to itself
            return sorted(visible, key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}") from None
