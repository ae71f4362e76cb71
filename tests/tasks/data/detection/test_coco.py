"""COCO's annotations: small files in the published format, comparison with mmdet, and invalid files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmdet.datasets import CocoDataset
from PIL import Image

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.detection.coco import DetectionData
from tests.input_errors import one_line
from tests.tasks.data.conftest import RealSource

FILES = ("annotations/instances_train2017.json", "annotations/instances_val2017.json")
CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]
BOX = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [10, 20, 30, 40], "area": 1200, "iscrowd": 0}


def content(images: int = 20) -> dict[str, list[dict[str, Any]]]:
    """Return annotations of some images with one box each."""
    return {
        "images": [{"id": n, "file_name": f"{n}.jpg", "width": 64, "height": 80} for n in range(1, images + 1)],
        "annotations": [{**BOX, "id": n, "image_id": n} for n in range(1, images + 1)],
        "categories": CATEGORIES,
    }


def write(folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """Write a set; `change` modifies its training annotations."""
    for number, file in enumerate(FILES):
        images = folder / ("train2017", "val2017")[number]
        images.mkdir(parents=True, exist_ok=True)
        annotations = content()
        for image in annotations["images"]:
            Image.new("RGB", (64, 80), (image["id"], 0, 0)).save(images / image["file_name"])
        if change is not None and number == 0:
            change(annotations)
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(annotations))
    return folder


def load(folder: Path) -> DetectionData:
    return read(locate("coco", folders={"coco": folder}), DetectionData)


def test_boxes_classes_and_splits(tmp_path: Path) -> None:
    data = load(write(tmp_path))
    assert data.classes == ("cat", "dog")  # by their numbers, as published
    assert data.category_ids == (3, 7)
    assert data.rows() == {"train": 18, "dev": 2, "test": 20}
    first = data.test.images[0]
    assert (first.id, first.name, first.width, first.height) == (1, "1.jpg", 64, 80)
    assert first.boxes.tolist() == [[10, 20, 40, 60]]
    assert (first.labels.tolist(), first.crowd.tolist()) == ([0], [False])
    assert data.class_rows()["test"] == {"cat": 20, "dog": 0}
    calls: list[int] = []
    data.verify(lambda: calls.append(1))
    assert len(calls) == 40


def test_invisible_boxes_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = ([0, 0, 0, 10], [0, 0, 10, 0.5], [64, 0, 10, 10], [-20, 0, 20, 10])

    def change(annotations: dict[str, Any]) -> None:
        for entry in annotations["annotations"][1:]:
            del entry["area"], entry["iscrowd"]  # which are optional
        annotations["annotations"] += [{**BOX, "id": 100 + n, "bbox": box} for n, box in enumerate(odd)]
        annotations["annotations"].append({**BOX, "id": 200, "iscrowd": 1, "category_id": 7})

    data = load(write(tmp_path, change))
    assert "4 boxes of train and dev outside of their image, or narrower than a pixel, left out" in data.notes
    (image,) = [image for split in (data.train, data.dev) for image in split.images if image.id == 1]
    assert image.crowd.tolist() == [False, True]
    assert image.labels.tolist() == [0, 1]
    assert sum(data.class_rows()[name]["dog"] for name in ("train", "dev")) == 0  # a crowd is none


def test_the_layout_with_a_folder_images(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "images").mkdir()
    for name in ("train2017", "val2017"):
        (tmp_path / name).rename(tmp_path / "images" / name)
    assert load(tmp_path).rows() == {"train": 18, "dev": 2, "test": 20}


def set_(key: str, index: int, **fields: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets fields of one entry of a list; None removes a field."""

    def change(annotations: dict[str, Any]) -> None:
        annotations[key] = deepcopy(annotations[key])
        for name, value in fields.items():
            annotations[key][index].pop(name)
            if value is not None:
                annotations[key][index][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_("images", 3, file_name="99.jpg"), r"images\[3\]: no image '99.jpg' in .*train2017"),
        (set_("images", 3, file_name="../val2017/1.jpg"), r"images\[3\]: no image '\.\./val2017/1.jpg'"),
        (set_("images", 3, file_name="x" * 300), r"images\[3\]: no image 'xxx"),
        (set_("images", 3, id=1), r"images\[3\]: duplicate image id 1"),
        (set_("images", 3, width=0), r"images\[3\]: width 0: expected an integer, 1 or larger"),
        (set_("images", 3, id="4"), r'images\[3\]: id "4": expected an integer, 0 or larger'),
        (set_("categories", 1, name="\ud83d"), r"categories\[1\]: name '\\ud83d': expected text in UTF-8"),
        (set_("images", 3, id=10**4000), r"images\[3\]: id 1000.*: expected an integer"),
        (set_("images", 3, file_name=None), r"images\[3\]: no file_name: expected a string"),
        (set_("annotations", 2, image_id=77), r"annotations\[2\]: image_id 77 is not among the images"),
        (set_("annotations", 2, category_id=1), r"annotations\[2\]: category_id 1 is not among the categories"),
        (set_("annotations", 2, bbox=[1, 2, -3, 4]), r"annotations\[2\]: bbox .*negative size"),
        (set_("annotations", 2, bbox=[1, 2, 3]), r"annotations\[2\]: bbox \[1, 2, 3\]: expected \[left, top"),
        (set_("annotations", 2, bbox=[1, 2, 3, float("nan")]), r"annotations\[2\]: bbox .*: expected \[left, top"),
        (set_("annotations", 2, bbox=[1, 2, 3, 10**400]), r"annotations\[2\]: bbox .*: expected \[left, top"),
        (set_("annotations", 2, area="12"), r"annotations\[2\]: area \"12\": expected a number of pixels, or none"),
        (set_("annotations", 2, iscrowd=2), r"annotations\[2\]: iscrowd 2: expected 0 or 1"),
        (set_("categories", 1, id=7), r"categories\[1\]: duplicate category id 7"),
        (set_("categories", 1, name="Cat"), "categories differ from those of instances_train2017.json"),
        (lambda annotations: annotations.pop("images"), "expected lists images, annotations and categories"),
        (lambda annotations: annotations.update(images=[3]), r"images\[0\]: expected an object"),
        (lambda annotations: annotations["annotations"].clear(), "no box in the images of train: expected one"),
        (lambda annotations: annotations.update(images=[], annotations=[]), "no rows for train"),
        (lambda annotations: annotations.update(categories=[]), "is not among the categories|no categories"),
    ],
)  # fmt: skip
def test_invalid_annotations_are_reported_by_entry(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    with one_line(message):
        load(write(tmp_path, change))


def test_a_nested_file_and_images_of_another_size_or_kind_are_reported(tmp_path: Path) -> None:
    data, image = load(write(tmp_path)), tmp_path / "val2017" / "5.jpg"
    Image.new("RGB", (65, 80)).save(image)
    with pytest.raises(InputError, match=r"5.jpg: 65 × 80 pixels as displayed: expected 64 × 80, as annotated"):
        data.verify(lambda: None)
    image.unlink()
    os.mkfifo(image)
    with pytest.raises(InputError, match=r"5.jpg: the image cannot be read: not a regular file"):
        data.verify(lambda: None)
    (tmp_path / FILES[0]).write_text("[" * 100_000)
    with one_line(r"instances_train2017.json: not valid JSON"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["coco-synthetic", "coco"])
def test_the_boxes_are_those_that_mmdet_reads(name: str, real: RealSource) -> None:
    source = locate(name) if name.endswith("-synthetic") else real(name)
    data = read(source, DetectionData)
    splits = ((source.files[0], [data.train, data.dev]), (source.files[1], [data.test]))
    for file, parts in splits:
        theirs = CocoDataset(
            ann_file=str(file), data_prefix={"img": ""}, metainfo={"classes": data.classes}, pipeline=[], test_mode=True
        )
        ours = {image.id: image for part in parts for image in part.images}
        assert len(theirs) == len(ours)
        for entry in theirs:
            image = ours[entry["img_id"]]
            assert (entry["width"], entry["height"]) == (image.width, image.height)
            assert np.allclose([instance["bbox"] for instance in entry["instances"]], image.boxes.tolist(), atol=1e-9)
            assert [instance["bbox_label"] for instance in entry["instances"]] == image.labels.tolist()
            assert [bool(instance["ignore_flag"]) for instance in entry["instances"]] == image.crowd.tolist()
