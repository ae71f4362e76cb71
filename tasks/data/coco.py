"""COCO's annotations of boxes (Lin et al. 2014): instances_*.json beside folders of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import InputError
from tasks.data.annotations import check_image, file_names, held_out, is_number, is_whole, read_json, text
from tasks.data.detection import BoxedImage, DetectionData, DetectionSplit
from tasks.data.splits import SPLIT_SEED

if TYPE_CHECKING:
    from tasks.data.locate import Source

MOST_DEV = 5000
"""Images of train that are held out as dev, at most: as many as the published validation set has."""


def read(source: Source) -> DetectionData:
    """The published validation set is the test split, as no boxes were published for the test images.

    What is trained and counted of the boxes is as mmdet has it: boxes outside of their image, or narrower than a
    pixel, are left out, here with a count of them; crowds are kept apart.

    Raises:
        InputError: a file is damaged, or its parts do not fit together; says which entry.
    """
    train_file, test_file, train_folder, test_folder = source.files
    train, test = _read(train_file, train_folder), _read(test_file, test_folder)
    if train.categories != test.categories:
        raise InputError(f"{test_file}: other categories than {train_file.name}: expected the same ids and names")
    kept, dev = held_out(train.images, MOST_DEV)
    notes = [
        f"dev is {len(dev)} images of train (seed {SPLIT_SEED})",
        f"test is {test_folder.name}",
        *(
            f"{count} boxes of {split} outside of their image, or narrower than a pixel, left out"
            for split, count in (("train and dev", train.left_out), ("test", test.left_out))
            if count
        ),
    ]
    return DetectionData(
        source.name,
        tuple(train.categories.values()),
        tuple(train.categories),
        DetectionSplit(train_file, train_folder, kept),
        DetectionSplit(train_file, train_folder, dev),
        DetectionSplit(test_file, test_folder, test.images),
        tuple(notes),
    )


@dataclass(frozen=True)
class _Annotations:
    categories: Mapping[int, str]
    images: tuple[BoxedImage, ...]
    left_out: int


def _read(path: Path, folder: Path) -> _Annotations:
    """One file, all of it looked at: what is wrong is told with the entry's place in its list."""
    content = _json(path)
    categories = dict(sorted(_categories(path, content)))
    numbers = {id: number for number, id in enumerate(categories)}
    there = file_names(folder)
    heads: dict[int, tuple[str, int, int]] = {}
    for place, entry in enumerate(content["images"]):
        where = f"{path}: images[{place}]"
        id, name = _integer(entry, "id", where), text(entry, "file_name", where)
        width, height = (_integer(entry, side, where, least=1) for side in ("width", "height"))
        if id in heads:
            raise InputError(f"{where}: a second image with id {id}")
        check_image(name, folder, there, where)
        heads[id] = (name, width, height)
    boxes: dict[int, list[tuple[list[float], int, bool]]] = {id: [] for id in heads}
    left_out = 0
    for place, entry in enumerate(content["annotations"]):
        where = f"{path}: annotations[{place}]"
        image, category = _integer(entry, "image_id", where), _integer(entry, "category_id", where)
        if image not in heads:
            raise InputError(f"{where}: image_id {image} is not among the images")
        if category not in categories:
            raise InputError(f"{where}: category_id {category} is not among the categories")
        box = _box(entry, where)
        if _is_seen(box, *heads[image][1:], area=entry.get("area")):
            boxes[image].append((box, numbers[category], bool(entry.get("iscrowd", 0))))
        else:
            left_out += 1
    return _Annotations(categories, tuple(_image(id, *heads[id], boxes[id]) for id in heads), left_out)


def _image(id: int, name: str, width: int, height: int, found: list[tuple[list[float], int, bool]]) -> BoxedImage:
    corners = [[left, top, left + wide, top + high] for (left, top, wide, high), _, _ in found]
    return BoxedImage(
        id,
        name,
        width,
        height,
        np.array(corners, np.float64).reshape(-1, 4),
        np.array([label for _, label, _ in found], np.int64),
        np.array([crowd for *_, crowd in found], np.bool_),
    )


def _json(path: Path) -> dict[str, list[Any]]:
    content = read_json(path)
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise InputError(f"{path}: expected lists images, annotations and categories, as in COCO's files")
        for place, entry in enumerate(content[key]):
            if not isinstance(entry, dict):
                raise InputError(f"{path}: {key}[{place}]: expected an object")
    whole: dict[str, list[Any]] = content
    return whole


def _categories(path: Path, content: dict[str, list[Any]]) -> list[tuple[int, str]]:
    found: dict[int, str] = {}
    for place, entry in enumerate(content["categories"]):
        where = f"{path}: categories[{place}]"
        id, name = _integer(entry, "id", where), text(entry, "name", where)
        if id in found or name in found.values():
            raise InputError(f"{where}: a second category with id {id} or name '{name[:40]}'")
        found[id] = name
    if not found:
        raise InputError(f"{path}: no categories")
    return list(found.items())


def _box(entry: dict[str, Any], where: str) -> list[float]:
    """Left, top, width, height in pixels."""
    box = entry.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(is_number(value) for value in box):
        raise InputError(f"{where}: bbox {str(box)[:60]}: expected [left, top, width, height]")
    if box[2] < 0 or box[3] < 0:
        raise InputError(f"{where}: bbox {box}: width and height of a box cannot be negative")
    return [float(value) for value in box]


def _is_seen(box: list[float], width: int, height: int, area: Any) -> bool:
    left, top, wide, high = box
    inner = [min(left + wide, width) - max(left, 0), min(top + high, height) - max(top, 0)]
    return min(inner) > 0 and wide >= 1 and high >= 1 and not (is_number(area) and area <= 0)


def _integer(entry: dict[str, Any], key: str, where: str, least: int = 0) -> int:
    value = entry.get(key)
    if not is_whole(value) or value < least:
        raise InputError(f"{where}: {key} {str(value)[:40]}: expected a whole number from {least}")
    return value
