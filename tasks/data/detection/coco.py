"""Reader of COCO's box annotations (Lin et al. 2014): instances_*.json and folders of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import InputError
from tasks.data.detection.annotations import Entry, hold_out_dev, is_number, list_names, read_json
from tasks.data.detection.boxes import BoxedImage, DetectionData, DetectionSplit
from tasks.data.locate import Source
from tasks.data.splits import SPLIT_SEED

MAX_DEV = 5000
"""Maximum number of train images held out as dev: the size of the published validation set."""

_Box = tuple[list[float], int, bool]
"""Left, top, width and height in pixels; label; True for a crowd."""


def read(source: Source) -> DetectionData:
    """Read both annotation files. The published validation set is test, as no boxes of test images were published.

    Boxes are filtered as by mmdet: those outside of their image, or narrower than a pixel, are left out and counted;
    crowds are kept apart.

    Raises:
        InputError: a file is damaged, or its parts do not fit together; the message names the entry.
    """
    train_file, test_file, train_folder, test_folder = source.files
    train, test = _read(train_file, train_folder), _read(test_file, test_folder)
    if train.categories != test.categories:
        raise InputError(f"{test_file}: categories differ from those of {train_file.name}: expected the same in both")
    train_images, dev_images = hold_out_dev(train.images, MAX_DEV)
    notes = [
        f"dev is {len(dev_images)} images of train (seed {SPLIT_SEED})",
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
        DetectionSplit(train_file, train_folder, train_images),
        DetectionSplit(train_file, train_folder, dev_images),
        DetectionSplit(test_file, test_folder, test.images),
        tuple(notes),
    )


@dataclass(frozen=True)
class _Annotations:
    categories: Mapping[int, str]
    images: tuple[BoxedImage, ...]
    left_out: int


def _read(path: Path, folder: Path) -> _Annotations:
    """Read and validate one annotation file; errors name the index of the entry in its list."""
    lists = _lists(path)
    categories = dict(sorted(_categories(path, lists["categories"])))
    labels = {id: label for label, id in enumerate(categories)}
    names = list_names(folder)
    headers: dict[int, tuple[str, int, int]] = {}
    for entry in lists["images"]:
        id = _id(entry)
        width, height = (entry.integer(side, "an integer, 1 or larger", minimum=1) for side in ("width", "height"))
        if id in headers:
            raise entry.error(f"duplicate image id {id}: expected unique ids")
        headers[id] = (entry.image_name(folder, names), width, height)
    boxes: dict[int, list[_Box]] = {id: [] for id in headers}
    left_out = 0
    for entry in lists["annotations"]:
        image, category = _id(entry, "image_id"), _id(entry, "category_id")
        if image not in headers:
            raise entry.error(f"image_id {image} is not among the images")
        if category not in categories:
            raise entry.error(f"category_id {category} is not among the categories")
        box = _box(entry)
        if _is_visible(box, *headers[image][1:], area=entry.content.get("area")):
            boxes[image].append((box, labels[category], bool(entry.content.get("iscrowd", 0))))
        else:
            left_out += 1
    return _Annotations(categories, tuple(_image(id, *headers[id], boxes[id]) for id in headers), left_out)


def _image(id: int, name: str, width: int, height: int, boxes: list[_Box]) -> BoxedImage:
    corners = [[left, top, left + box_width, top + box_height] for (left, top, box_width, box_height), _, _ in boxes]
    return BoxedImage(
        id,
        name,
        width,
        height,
        np.array(corners, np.float64).reshape(-1, 4),
        np.array([label for _, label, _ in boxes], np.int64),
        np.array([crowd for *_, crowd in boxes], np.bool_),
    )


def _lists(path: Path) -> dict[str, list[Entry]]:
    content = read_json(path)
    lists = {}
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise InputError(f"{path}: expected lists images, annotations and categories, as in COCO's files")
        lists[key] = [Entry(entry, f"{path}: {key}[{index}]") for index, entry in enumerate(content[key])]
    return lists


def _categories(path: Path, entries: list[Entry]) -> list[tuple[int, str]]:
    categories: dict[int, str] = {}
    for entry in entries:
        id, name = _id(entry), entry.string("name")
        if id in categories or name in categories.values():
            raise entry.error(f"duplicate category id {id} or name '{name[:40]}': expected unique ones")
        categories[id] = name
    if not categories:
        raise InputError(f"{path}: no categories: expected one at least")
    return list(categories.items())


def _id(entry: Entry, key: str = "id") -> int:
    return entry.integer(key, "an integer, 0 or larger")


def _box(entry: Entry) -> list[float]:
    """Return left, top, width, height in pixels."""
    box = entry.box("[left, top, width, height]")
    if box[2] < 0 or box[3] < 0:
        raise entry.error(f"bbox {box}: negative size: expected [left, top, width, height]")
    return [float(value) for value in box]


def _is_visible(box: list[float], width: int, height: int, area: Any) -> bool:
    left, top, box_width, box_height = box
    inner = [min(left + box_width, width) - max(left, 0), min(top + box_height, height) - max(top, 0)]
    return min(inner) > 0 and box_width >= 1 and box_height >= 1 and not (is_number(area) and area <= 0)
