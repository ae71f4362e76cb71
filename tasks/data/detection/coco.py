"""Object detection data, and the reader of COCO's (Lin et al. 2014): instances_*.json and folders of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import read_json
from dropbench.tasks.data.detection.annotations import (
    AnnotatedImage,
    AnnotatedSplit,
    Entry,
    hold_out_dev,
    is_number,
    list_names,
)
from dropbench.tasks.data.images.image_arrays import displayed_size
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import ThreeSplits

MAX_DEV = 5000
"""Maximum number of train images held out as dev: the size of the published validation set."""


@dataclass(frozen=True, eq=False, slots=True)
class BoxedImage(AnnotatedImage):
    """An image of COCO; width and height are in pixels.

    `crowd` (N,) is True for a box around a crowd, which is neither a training target nor a possible miss.
    """

    crowd: NDArray[np.bool_]
    id: int
    width: int
    height: int


DetectionSplit = AnnotatedSplit[BoxedImage]


@dataclass(frozen=True, eq=False)
class DetectionData(ThreeSplits[DetectionSplit]):
    """An object detection set; `category_ids` are the ids of the classes in the annotations."""

    kind: ClassVar[str] = "object-detection"
    category_ids: tuple[int, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, split in self.splits().items():
            if all(image.crowd.all() for image in split.images):
                raise InputError(f"{split.annotations}: no box in the images of {name}: expected one at least")

    def count_classes(self, split: DetectionSplit) -> list[int]:
        """Return the number of boxes of each class in a split, without crowds."""
        labels = np.concatenate([image.labels[~image.crowd] for image in split.images])
        return cast(list[int], np.bincount(labels, minlength=len(self.classes)).tolist())

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image, and raise InputError if its size, as it is displayed, differs from the annotated one."""
        for split in self.splits().values():
            files = split.files()
            for index, image in enumerate(split.images):
                require_size(files.path(index), image, *displayed_size(files.path(index), files[index]))
                progress()


def require_size(path: Path, image: BoxedImage, width: int, height: int) -> None:
    """Raise InputError if an image does not have the size that its annotation states."""
    if (width, height) != (image.width, image.height):
        turned = (height, width) == (image.width, image.height)
        hint = (
            " (a tool may have ignored the orientation in its EXIF data: remove that from the file)" if turned else ""
        )
        expected = f"expected {image.width} × {image.height}, as annotated{hint}"
        raise InputError(f"{path}: {width} × {height} pixels as displayed: {expected}")


def read(source: Source) -> DetectionData:
    """Read both annotation files. The published validation set is test, as no boxes of test images were published.

    Boxes are filtered as by mmdet: those outside of their image, or narrower than a pixel, are left out and counted;
    crowds are kept apart. Unlike there, a box may have the area 0, which programs without masks write.

    Raises:
        InputError: a file is damaged, or its parts do not fit together; the message names the entry.
    """
    train_file, test_file, train_folder, test_folder = source.files
    categories, images, train_left_out = read_annotations(train_file, train_folder)
    test_categories, test_images, test_left_out = read_annotations(test_file, test_folder)
    if categories != test_categories:
        raise InputError(f"{test_file}: categories differ from those of {train_file.name}: expected the same in both")
    train, dev = hold_out_dev(DetectionSplit(train_file, train_folder, images), source.split_seed, MAX_DEV)
    test = DetectionSplit(test_file, test_folder, test_images)
    notes = [
        f"dev is {count_of(len(dev), 'image')} of train (seed {source.split_seed})",
        f"test is {test_folder.name}",
        *(
            f"{count_of(count, 'box', 'boxes')} of {split} outside of their image, or narrower than a pixel, left out"
            for split, count in (("train and dev", train_left_out), ("test", test_left_out))
            if count
        ),
    ]
    names, ids = tuple(categories.values()), tuple(categories)
    return DetectionData(source.name, names, train, dev, test, tuple(notes), category_ids=ids)


def read_annotations(path: Path, folder: Path) -> tuple[dict[int, str], tuple[BoxedImage, ...], int]:
    """Return categories by id, images, and the number of boxes left out; errors name the index of the entry."""
    lists = _lists(path)
    categories = _categories(path, lists["categories"])
    labels = {id: label for label, id in enumerate(categories)}
    names = list_names(folder)
    headers: dict[int, tuple[str, int, int]] = {}
    for entry in lists["images"]:
        id = _id(entry)
        width, height = (entry.integer(side, "an integer, 1 or larger", minimum=1) for side in ("width", "height"))
        if id in headers:
            raise entry.error(f"duplicate image id {id}: expected unique ids")
        headers[id] = (entry.image_name(folder, names), width, height)
    # Left, top, width, height, label, and 1 for a crowd.
    boxes: dict[int, list[list[float]]] = {id: [] for id in headers}
    left_out = 0
    for entry in lists["annotations"]:
        image, category = _id(entry, "image_id"), _id(entry, "category_id")
        if image not in headers:
            raise entry.error(f"image_id {image} is not among the images")
        if category not in categories:
            raise entry.error(f"category_id {category} is not among the categories")
        box, area, crowd = _box(entry), entry.content.get("area"), entry.content.get("iscrowd")
        if area is not None and not is_number(area):
            raise entry.error(f"{entry.given('area')}: expected a number of pixels, or none")
        if crowd not in (None, 0, 1):
            raise entry.error(f"{entry.given('iscrowd')}: expected 0 or 1")
        if _is_visible(box, *headers[image][1:]):
            boxes[image].append([*box, labels[category], bool(crowd)])
        else:
            left_out += 1
    images = []
    for id, (name, width, height) in headers.items():
        table = np.array(boxes[id], np.float64).reshape(-1, 6)
        table[:, 2:4] += table[:, :2]
        crowd = table[:, 5].astype(bool)
        images.append(BoxedImage(name, table[:, :4].copy(), table[:, 4].astype(int), crowd, id, width, height))
    return categories, tuple(images), left_out


def _lists(path: Path) -> dict[str, list[Entry]]:
    content = read_json(path)
    lists = {}
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise InputError(f"{path}: expected lists images, annotations and categories, as in COCO's files")
        lists[key] = [Entry(entry, f"{path}: {key}[{index}]") for index, entry in enumerate(content[key])]
    return lists


def _categories(path: Path, entries: list[Entry]) -> dict[int, str]:
    categories: dict[int, str] = {}
    for entry in entries:
        id, name = _id(entry), entry.string("name")
        if id in categories or name in categories.values():
            raise entry.error(f"duplicate category id {id} or name '{name[:40]}': expected unique ones")
        categories[id] = name
    if not categories:
        raise InputError(f"{path}: no categories: expected one at least")
    return dict(sorted(categories.items()))


def _id(entry: Entry, key: str = "id") -> int:
    return entry.integer(key, "an integer, 0 or larger")


def _box(entry: Entry) -> list[float]:
    """Return left, top, width, height in pixels."""
    box = entry.box("[left, top, width, height]")
    if box[2] < 0 or box[3] < 0:
        raise entry.error(f"bbox {box}: negative size: expected [left, top, width, height]")
    return [float(value) for value in box]


def _is_visible(box: list[float], width: int, height: int) -> bool:
    left, top, box_width, box_height = box
    inner = [min(left + box_width, width) - max(left, 0), min(top + box_height, height) - max(top, 0)]
    return min(inner) > 0 and box_width >= 1 and box_height >= 1
