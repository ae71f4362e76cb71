"""HICO-DET: small files in the published format, the published test split, and invalid files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.detection.hico import OBJECTS
from dropbench.tasks.data.detection.interactions import InteractionData
from tests.input_errors import one_line
from tests.tasks.data.conftest import RealSource

BICYCLE, APPLE, HOLD, RIDE = 2, 53, 37, 77
"""Ids in the annotations."""
Change = Callable[[list[Any]], Any]


def entry(number: int, split: str = "train") -> dict[str, Any]:
    """Return the entry of a person who holds an apple, next to a bicycle."""
    boxes = [(PERSON_BOX, 1), ([30, 20, 50, 60], BICYCLE), ([5, 30, 12, 40], APPLE)]
    return {
        "file_name": f"HICO_{split}2015_{number:08d}.jpg",
        "img_id": number,
        "annotations": [{"bbox": box, "category_id": category} for box, category in boxes],
        "hoi_annotation": [{"subject_id": 0, "object_id": 2, "category_id": HOLD, "hoi_category_id": 1}],
    }


PERSON_BOX = [10, 20, 40, 60]


def matrix() -> np.ndarray[Any, np.dtype[np.float64]]:
    possible = np.zeros((117, 80))
    for verb, number in ((HOLD, APPLE), (RIDE, BICYCLE), (HOLD, BICYCLE), (58, BICYCLE)):
        possible[verb - 1, list(OBJECTS).index(number)] = 1
    return possible


def write(folder: Path, train: Change | None = None, test: Change | None = None, flat: bool = False) -> Path:
    """Write a set; `train` and `test` modify its annotations."""
    annotations = folder if flat else folder / "annotations"
    annotations.mkdir(parents=True, exist_ok=True)
    for split, file, change in (("train", "trainval", train), ("test", "test", test)):
        images = folder / "images" / f"{split}2015"
        images.mkdir(parents=True)
        entries = [entry(number, split) for number in range(1, 21)]
        for image in entries:
            Image.new("RGB", (64, 80)).save(images / image["file_name"])
        if change is not None:
            change(entries)
        (annotations / f"{file}_hico.json").write_text(json.dumps(entries))
    np.save(annotations / "corre_hico.npy", matrix())
    return folder


def name_interactions(folder: Path) -> list[str]:
    """Write the lists of the published names of verbs and interactions; return the lines of the latter."""
    names = [f"name{number}" for number in range(1, 118)]
    lines = ["id   verb", "-----", *(f"{number:03d}  {name}  " for number, name in enumerate(names, 1))]
    (folder / "hico_list_vb.txt").write_text("\n".join(lines))
    listed = ["001 bicycle name77", "002 apple name37", "003 bicycle name58", "004 bicycle name37"]
    (folder / "hico_list_hoi.txt").write_text("\n".join(listed))
    return listed


def load(folder: Path) -> InteractionData:
    return read(locate("hico-det", folders={"hico-det": folder}), InteractionData)


@pytest.mark.parametrize("flat", [False, True])
def test_boxes_pairs_and_classes(tmp_path: Path, flat: bool) -> None:
    data = load(write(tmp_path, flat=flat))
    assert data.rows() == {"train": 18, "dev": 2, "test": 20}
    assert data.classes == ("verb-37 bicycle", "verb-58 bicycle", "verb-77 bicycle", "verb-37 apple")  # by number
    assert data.interactions.rare.tolist() == [True, True, True, False]
    first = data.test.images[0]
    assert first.boxes.tolist() == [[10, 20, 40, 60], [30, 20, 50, 60], [5, 30, 12, 40]]
    assert [data.interactions.objects[label] for label in first.labels] == ["person", "bicycle", "apple"]
    assert first.pairs.tolist() == [[0, 2, HOLD - 1]]
    assert list(data.class_rows()["test"].values()) == [0, 0, 0, 20]
    names = [{image.name for image in split.images} for split in (data.train, data.dev)]
    assert len(names[0] | names[1]) == 20
    calls: list[int] = []
    data.verify(lambda: calls.append(1))
    assert len(calls) == 40


def test_the_published_test_split(real: RealSource) -> None:
    source = real("hico-det")
    data = read(source, InteractionData)
    assert data.rows()["test"] == 9_546
    assert sum(len(image.boxes) for image in data.test.images) == 56_786
    assert sum(data.class_rows()["test"].values()) == 33_405
    assert (len(data.classes), int(data.interactions.rare.sum())) == (600, 138)
    assert (data.interactions.numbers >= 0).sum() == 600
    rows = [line.split() for line in (source.folder / "hico_list_hoi.txt").read_text().splitlines() if line.strip()]
    names = {int(number): f"{verb} {thing}" for number, thing, verb in rows}
    published = json.loads(next(file for file in source.files if file.name == "test_hico.json").read_bytes())
    for image, annotation in zip(data.test.images, published, strict=True):
        classes = data.interactions.numbers[image.pairs[:, 2], image.labels[image.pairs[:, 1]]]
        expected = [names[pair["hoi_category_id"]] for pair in annotation["hoi_annotation"]]
        assert [data.classes[number] for number in classes] == expected
    rare = json.loads((source.folder / "rare_split.json").read_bytes())["rare"]
    assert {names[number] for number in rare} == {
        name for name, rare in zip(data.classes, data.interactions.rare, strict=True) if rare
    }


def test_boxes_without_a_size_are_left_out_of_training_and_refused_in_test(tmp_path: Path) -> None:
    def flatten(images: list[Any]) -> None:
        images[3]["annotations"][1]["bbox"] = [30, 20, 30, 60]
        for image in images[4:19]:
            image["annotations"][2]["bbox"] = [30, 20, 20, 60]

    data = load(write(tmp_path / "train", train=flatten))
    assert "boxes of trainval without a size, left out with their pairs: 16" in data.notes
    assert data.interactions.rare.tolist() == [True, True, True, False]  # counted before boxes are left out
    images = {image.name[-7:-4]: image for split in (data.train, data.dev) for image in split.images}
    assert [len(images[name].boxes) for name in ("003", "004", "005")] == [3, 2, 2]
    assert images["004"].pairs.tolist() == [[0, 1, HOLD - 1]]  # the apple is the second box now
    assert images["005"].pairs.tolist() == []
    message = r"test_hico\.json: \[3\]: annotations\[1\]: bbox .* has no width or no height"
    with one_line(message):
        load(write(tmp_path / "test", test=flatten))


def test_images_with_a_pair_of_an_absent_box_are_left_out_of_training(tmp_path: Path) -> None:
    def absent(images: list[Any]) -> None:
        images[4]["hoi_annotation"].append({"subject_id": 0, "object_id": 3, "category_id": HOLD})

    data = load(write(tmp_path / "train", train=absent))
    assert data.rows() == {"train": 18, "dev": 1, "test": 20}
    assert data.notes[-1] == "images of trainval left out, as a pair has an index beyond the boxes: 1"
    with pytest.raises(InputError, match=r"\[4\]: hoi_annotation\[1\]: object_id 3: expected the index of one of 3"):
        load(write(tmp_path / "test", test=absent))


@pytest.mark.parametrize("subfolder", ["annotations", "."])
def test_published_rare_interactions_are_used_if_they_can_be_read(tmp_path: Path, subfolder: str) -> None:
    write(tmp_path)
    before = locate("hico-det", folders={"hico-det": tmp_path}).fingerprint()
    (tmp_path / subfolder / "rare_split.json").write_text(json.dumps({"rare": [2, 3]}))
    counted = load(tmp_path)
    assert counted.interactions.rare.tolist() == [True, True, True, False]
    unused = "rare_split.json is not used without hico_list_hoi.txt, hico_list_vb.txt"
    assert f"3 of 4 interactions are rare: below 10 instances in trainval; {unused}" in counted.notes
    name_interactions(tmp_path / subfolder)
    listed = load(tmp_path)
    assert listed.interactions.rare.tolist() == [False, True, False, True]
    assert "2 of 4 interactions are rare: as in rare_split.json" in listed.notes
    assert locate("hico-det", folders={"hico-det": tmp_path}).fingerprint() != before


def change(*path: Any, value: Any) -> Change:
    """Return a function that sets a value in the annotations of the third image."""

    def apply(images: list[Any]) -> None:
        container = images[2]
        for key in path[:-1]:
            container = container[key]
        container[path[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change("file_name", value="no.jpg"), r"\[2\]: no image 'no.jpg' in .*train2015"),
        (change("file_name", value="../test2015/HICO_test2015_00000001.jpg"), r"\[2\]: no image"),
        (change("annotations", value=None), r"\[2\]: expected annotations, a list of objects"),
        (
            change("annotations", 1, "category_id", value=12),
            r"annotations\[1\]: category_id 12: expected one of COCO's",
        ),
        (change("annotations", 1, "bbox", value=[1, 2, 3, float("nan")]), r"annotations\[1\]: bbox"),
        (
            change("hoi_annotation", 0, "category_id", value=118),
            r"hoi_annotation\[0\]: category_id 118: expected a verb",
        ),
        (change("hoi_annotation", 0, "category_id", value=0), r"hoi_annotation\[0\]: category_id 0: expected a verb"),
        (change("hoi_annotation", 0, "category_id", value=RIDE), "verb 77 with apple: corre_hico.npy has no such"),
        (change("hoi_annotation", 0, "object_id", value=-1), r"object_id -1: expected the index of one of 3 boxes"),
        (change("hoi_annotation", 0, "subject_id", value=1), r"subject_id 1: expected the box of a person"),
        (list.clear, "no images"),
    ],
)
def test_invalid_annotations_are_reported_by_entry(tmp_path: Path, changed: Change, message: str) -> None:
    with one_line(message) as error:
        load(write(tmp_path, train=changed))
    assert "trainval_hico.json: " in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((80, 117)), r"shape \(80, 117\): expected \(117, 80\)"),
        (np.full((117, 80), 2.0), "expected zeros, and ones"),
        (np.array([{}], dtype=object), "not a NumPy array"),
    ],
)
def test_other_matrices_are_refused(tmp_path: Path, value: Any, message: str) -> None:
    write(tmp_path)
    np.save(tmp_path / "annotations" / "corre_hico.npy", value)
    with one_line(message):
        load(tmp_path)


def test_test_annotations_suffice_for_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "full")
    folder = tmp_path / "test_only"
    folder.mkdir()
    for file in ("test_hico.json", "corre_hico.npy"):
        (tmp_path / "full" / "annotations" / file).rename(folder / file)
    listed = name_interactions(folder)
    (folder / "rare_split.json").write_text(json.dumps({"rare": [2, 3]}))
    data = load(folder)
    assert data.rows() == {"train": 0, "dev": 0, "test": 20}
    rare = [name for name, rare in zip(data.classes, data.interactions.rare, strict=True) if rare]
    assert rare == ["name58 bicycle", "name37 apple"]
    assert data.notes == ("test annotations alone: detections can be evaluated, nothing can be trained",)
    assert run(["data", "check", f"hico-det={folder}"]) == 0
    assert "note: test annotations alone" in capsys.readouterr().out
    (folder / "rare_split.json").write_text(json.dumps({"rare": [5]}))
    with pytest.raises(InputError, match=r"rare_split\.json: expected a list rare with numbers .* from 1 to 4"):
        load(folder)
    (folder / "hico_list_hoi.txt").write_text("\n".join([listed[0], "002 apple name38"]))
    with pytest.raises(InputError, match=r"hico_list_hoi\.txt:2: '002 apple name38': expected a number"):
        load(folder)
    (folder / "hico_list_hoi.txt").write_text("\n".join(listed[:2]))
    with pytest.raises(InputError, match=r"hico_list_hoi\.txt: 2 interactions: expected 4"):
        load(folder)
    (folder / "hico_list_vb.txt").write_text("id   verb\n-----\n001  name1")
    with pytest.raises(InputError, match=r"hico_list_vb\.txt: 1 verbs?: expected 117"):
        load(folder)


def test_a_split_without_pairs_is_refused_before_training(tmp_path: Path) -> None:
    def empty(entries: list[Any], numbers: set[int]) -> None:
        for image in entries:
            image["hoi_annotation"] *= image["img_id"] not in numbers

    dev = {int(image.name[-12:-4]) for image in load(write(tmp_path / "whole")).dev.images}
    with pytest.raises(InputError, match=r"trainval_hico\.json: no pairs in the 2 images of dev: expected some"):
        load(write(tmp_path / "dev", train=lambda entries: empty(entries, dev)))
    with pytest.raises(InputError, match=r"test_hico\.json: no pairs in the 20 images of test: expected some"):
        load(write(tmp_path / "test", test=lambda entries: empty(entries, set(range(21)))))
