"""HICO-DET (Chao et al. 2018) in the files that QPIC reads: a list of images with boxes and pairs, and a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.annotations import check_image, file_names, held_out, is_number, is_whole, read_json, text
from tasks.data.interactions import RARE_BELOW, InteractionData, Interactions, InteractionSplit, PairedImage
from tasks.data.splits import SPLIT_SEED

if TYPE_CHECKING:
    from tasks.data.locate import Source

VERBS = 117
PERSON = 1
"""The number of persons in the annotations."""

_NAMES = """
    person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant - stop_sign parking_meter
    bench bird cat dog horse sheep cow elephant bear zebra giraffe - backpack umbrella - - handbag tie suitcase frisbee
    skis snowboard sports_ball kite baseball_bat baseball_glove skateboard surfboard tennis_racket bottle - wine_glass
    cup fork knife spoon bowl banana apple sandwich orange broccoli carrot hot_dog pizza donut cake chair couch
    potted_plant bed - dining_table - - toilet - tv laptop mouse remote keyboard cell_phone microwave oven toaster sink
    refrigerator - book clock vase scissors teddy_bear hair_drier toothbrush
"""
OBJECTS = {number: name for number, name in enumerate(_NAMES.split(), 1) if name != "-"}
"""COCO's 80 classes by their numbers, which go to 90."""

_LABELS = {number: label for label, number in enumerate(OBJECTS)}


def read(source: Source) -> InteractionData:
    """All splits; test alone where there are no training annotations, which is enough for evaluating detections.

    A box without a size is left out of training with its pairs, as by QPIC, and counted.

    Raises:
        InputError: a file is damaged, or its parts do not fit together; says which entry.
    """
    files = {file.name: file for file in source.files}
    matrix = read_matrix(files["corre_hico.npy"])
    test_file, names = files["test_hico.json"], _verb_names(source)
    known = interactions(matrix, names)
    if "trainval_hico.json" not in files:
        found = _read(test_file, None, matrix)
        known = replace(known, rare=_published_rare(files, known))
        nothing = InteractionSplit(test_file, None, ())
        told = "test annotations alone: detections can be evaluated, nothing can be trained"
        return InteractionData(source.name, known, nothing, nothing, replace(nothing, images=found.images), (told,))
    train_file = files["trainval_hico.json"]
    train = _read(train_file, files["train2015"], matrix, training=True)
    test = _read(test_file, files["test2015"], matrix)
    known = replace(known, rare=known.count(train.images) < RARE_BELOW)
    kept, dev = held_out(train.images)
    if not dev:
        raise InputError(f"{train_file}: {len(train.images)} images: too few to be parted into train and dev")
    notes = (
        f"dev is {len(dev)} images of trainval (seed {SPLIT_SEED})",
        f"{known.rare.sum()} of {len(known.classes)} interactions are rare: below {RARE_BELOW} instances in trainval",
        *([f"{train.left_out} boxes of trainval without a size left out, with their pairs"] if train.left_out else []),
    )
    return InteractionData(
        source.name,
        known,
        InteractionSplit(train_file, files["train2015"], kept),
        InteractionSplit(train_file, files["train2015"], dev),
        InteractionSplit(test_file, files["test2015"], test.images),
        notes,
    )


def read_matrix(path: Path) -> NDArray[np.bool_]:
    """The matrix of possible interactions, (117 verbs, 80 objects).

    Raises:
        InputError: no array of that shape with zeros and ones.
    """
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: no array of NumPy's: {' '.join(str(error).split())[:80]}") from None
    shape = getattr(found, "shape", None)
    if shape != (VERBS, len(OBJECTS)):
        raise InputError(f"{path}: shape {shape}: expected ({VERBS}, {len(OBJECTS)}), verbs and objects")
    if not np.isin(found, (0, 1)).all() or not found.any():
        raise InputError(f"{path}: expected zeros and ones: whether a verb goes with an object")
    return np.asarray(found == 1)


def interactions(matrix: NDArray[np.bool_], verbs: tuple[str, ...]) -> Interactions:
    """The classes, by object and then by verb; none of them rare."""
    objects, classes = tuple(OBJECTS.values()), np.argwhere(matrix.T)[:, ::-1]
    return Interactions(verbs, objects, classes.astype(np.int64), np.zeros(len(classes), np.bool_))


def _verb_names(source: Source) -> tuple[str, ...]:
    """Of hico_list_vb.txt, where it lies beside the matrix or above it: two lines of heading, then number and name."""
    beside = next(file for file in source.files if file.name == "corre_hico.npy").parent
    path = next((p for p in (beside / "hico_list_vb.txt", source.folder / "hico_list_vb.txt") if p.is_file()), None)
    if path is None:
        return tuple(f"verb-{number}" for number in range(1, VERBS + 1))
    names: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines()[2:], 3):
        if not line.strip():
            continue
        match line.split():
            case [place, name] if place == f"{len(names) + 1:03d}":
                names.append(name)
            case _:
                raise InputError(f"{path}:{number}: '{line.strip()[:40]}': expected {len(names) + 1:03d} and a verb")
    if len(names) != VERBS:
        raise InputError(f"{path}: {len(names)} verbs: expected {VERBS}")
    return tuple(names)


def _published_rare(files: Mapping[str, Path], known: Interactions) -> NDArray[np.bool_]:
    """Of rare_split.json: HICO-DET's numbers of the rare interactions, which hico_list_hoi.txt names."""
    path, content = files["rare_split.json"], read_json(files["rare_split.json"])
    listed = _hoi_numbers(files["hico_list_hoi.txt"], known)
    numbers = content.get("rare") if isinstance(content, dict) else None
    if not isinstance(numbers, list) or not all(is_whole(number) and number in listed for number in numbers):
        raise InputError(f"{path}: expected a list rare with numbers of interactions from 1 to {len(listed)}")
    rare = np.zeros(len(known.classes), np.bool_)
    rare[[listed[number] for number in numbers]] = True
    return rare


def _hoi_numbers(path: Path, known: Interactions) -> dict[int, int]:
    """HICO-DET's number of an interaction → class. Lines are number, object and verb."""
    places = {name: place for place, name in enumerate(known.names)}
    found: dict[int, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match line.split():
            case []:
                continue
            case [place, object, verb] if place == f"{len(found) + 1:03d}" and f"{verb} {object}" in places:
                found[len(found) + 1] = places[f"{verb} {object}"]
            case _:
                raise InputError(f"{path}:{number}: '{line.strip()[:60]}': expected a number, an object and its verb")
    if len(set(found.values())) != len(places):
        raise InputError(f"{path}: {len(set(found.values()))} interactions: expected {len(places)}")
    return found


@dataclass(frozen=True)
class _Annotations:
    images: tuple[PairedImage, ...]
    left_out: int


def _read(path: Path, folder: Path | None, matrix: NDArray[np.bool_], training: bool = False) -> _Annotations:
    """One file, all of it looked at: what is wrong is told with the entry's place in its list."""
    content = read_json(path)
    if not isinstance(content, list):
        raise InputError(f"{path}: expected a list of images")
    there = file_names(folder) if folder is not None else set()
    images, left_out = [], 0
    for place, entry in enumerate(content):
        where = f"{path}: [{place}]"
        if not isinstance(entry, dict):
            raise InputError(f"{where}: expected an object")
        name = text(entry, "file_name", where)
        if folder is not None:
            check_image(name, folder, there, where)
        boxes, labels = _boxes(entry, where)
        pairs = _pairs(entry, where, labels, matrix)
        sized = ((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])) if len(boxes) else np.ones(0, np.bool_)
        if not sized.all():
            if not training:
                number = int(np.argmin(sized))
                raise InputError(
                    f"{where}: annotations[{number}]: bbox {boxes[number].tolist()}: width and height of a box must be "
                    "above 0: expected [left, top, right, bottom]"
                )
            left_out += int((~sized).sum())
            pairs = pairs[sized[pairs[:, :2]].all(axis=1)]
            pairs[:, :2] = (np.cumsum(sized) - 1)[pairs[:, :2]]
            boxes, labels = boxes[sized], labels[sized]
        images.append(PairedImage(name, boxes, labels, pairs))
    if not images:
        raise InputError(f"{path}: no images")
    return _Annotations(tuple(images), left_out)


def _boxes(entry: dict[str, Any], where: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    boxes, labels = [], []
    for number, one in enumerate(_objects(entry, "annotations", where)):
        here = f"{where}: annotations[{number}]"
        box, category = one.get("bbox"), one.get("category_id")
        if not isinstance(box, list) or len(box) != 4 or not all(is_number(value) for value in box):
            raise InputError(f"{here}: bbox {str(box)[:60]}: expected [left, top, right, bottom]")
        if not is_whole(category) or category not in _LABELS:
            raise InputError(
                f"{here}: category_id {str(category)[:40]}: expected that of one of COCO's classes, 1 to 90"
            )
        boxes.append(box)
        labels.append(_LABELS[category])
    return np.array(boxes, np.float64).reshape(-1, 4), np.array(labels, np.int64)


def _pairs(
    entry: dict[str, Any], where: str, labels: NDArray[np.int64], matrix: NDArray[np.bool_]
) -> NDArray[np.int64]:
    pairs = []
    for number, one in enumerate(_objects(entry, "hoi_annotation", where)):
        here = f"{where}: hoi_annotation[{number}]"
        subject, object, verb = (one.get(key) for key in ("subject_id", "object_id", "category_id"))
        for key, index in (("subject_id", subject), ("object_id", object)):
            if not is_whole(index) or not 0 <= index < len(labels):
                raise InputError(f"{here}: {key} {str(index)[:40]}: expected the index of one of {len(labels)} boxes")
        if not is_whole(verb) or not 1 <= verb <= VERBS:
            raise InputError(f"{here}: category_id {str(verb)[:40]}: expected a verb, 1 to {VERBS}")
        if labels[subject] != _LABELS[PERSON]:
            raise InputError(f"{here}: subject_id {subject}: expected the box of a person, category_id {PERSON}")
        if not matrix[verb - 1, labels[object]]:
            name = tuple(OBJECTS.values())[labels[object]]
            raise InputError(f"{here}: verb {verb} with {name}: no interaction by corre_hico.npy")
        pairs.append((subject, object, verb - 1))
    return np.array(pairs, np.int64).reshape(-1, 3)


def _objects(entry: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    found = entry.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{where}: expected {key}, a list of objects")
    return found
