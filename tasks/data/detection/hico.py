"""Reader of HICO-DET (Chao et al. 2018) in QPIC's format: a list of images with boxes and pairs, and a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import read_json
from dropbench.tasks.data.detection.annotations import Entry, hold_out_dev, is_integer, list_names
from dropbench.tasks.data.detection.interactions import (
    RARE_BELOW,
    InteractionData,
    Interactions,
    InteractionSplit,
    PairedImage,
)
from dropbench.tasks.data.locate import Source

VERBS = 117
PERSON = 1
"""Category id of persons in the annotations."""
RARE_FILES = ("rare_split.json", "hico_list_hoi.txt", "hico_list_vb.txt")
"""The published rare interactions, by number, and the lists that name numbers and verbs."""

_NAMES = """
    person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant - stop_sign parking_meter
    bench bird cat dog horse sheep cow elephant bear zebra giraffe - backpack umbrella - - handbag tie suitcase frisbee
    skis snowboard sports_ball kite baseball_bat baseball_glove skateboard surfboard tennis_racket bottle - wine_glass
    cup fork knife spoon bowl banana apple sandwich orange broccoli carrot hot_dog pizza donut cake chair couch
    potted_plant bed - dining_table - - toilet - tv laptop mouse remote keyboard cell_phone microwave oven toaster sink
    refrigerator - book clock vase scissors teddy_bear hair_drier toothbrush
"""
OBJECTS = {number: name for number, name in enumerate(_NAMES.split(), 1) if name != "-"}
"""COCO's 80 classes by category id, 1 to 90."""

_LABELS = {number: label for label, number in enumerate(OBJECTS)}


def read(source: Source) -> InteractionData:
    """Read all splits, or test alone without training annotations, which suffices to evaluate detections.

    As by QPIC, training boxes of zero size are left out with their pairs, and training images with a pair of a box that
    they do not have; both are counted. Rare interactions are those of rare_split.json if the folder has it
    with the two lists of names, else those with fewer than `RARE_BELOW` pairs in trainval, boxes of zero size included.

    Raises:
        InputError: a file is damaged, or its parts do not fit together; the message names the entry.
    """
    files = {file.name: file for file in source.files}
    matrix = read_matrix(files["corre_hico.npy"])
    test_file = files["test_hico.json"]
    # By object and then by verb; none of them rare so far.
    classes = np.argwhere(matrix.T)[:, ::-1].astype(np.int64)
    none_rare = np.zeros(len(classes), np.bool_)
    interactions = Interactions(_verb_names(source), tuple(OBJECTS.values()), classes, none_rare)
    if "trainval_hico.json" not in files:
        test = InteractionSplit(test_file, None, _read(test_file, None, matrix)[0])
        interactions = replace(interactions, rare=_published_rare(files, interactions))
        empty = replace(test, images=())
        note = "test annotations alone: detections can be evaluated, nothing can be trained"
        return InteractionData(source.name, interactions.names, empty, empty, test, (note,), interactions=interactions)
    train_file = files["trainval_hico.json"]
    annotated, left_out = _read(train_file, files["train2015"], matrix, training=True)
    images = tuple(_without_unsized(image) for image in annotated)
    unsized = sum(len(image.boxes) for image in annotated) - sum(len(image.boxes) for image in images)
    test = InteractionSplit(test_file, files["test2015"], _read(test_file, files["test2015"], matrix)[0])
    missing = [name for name in RARE_FILES if name not in files]
    rare = interactions.count(annotated) < RARE_BELOW if missing else _published_rare(files, interactions)
    rule = "as in rare_split.json"
    if missing:
        unused = f"; rare_split.json is not used without {', '.join(missing)}" if "rare_split.json" in files else ""
        rule = f"below {RARE_BELOW} instances in trainval{unused}"
    interactions = replace(interactions, rare=rare)
    train, dev = hold_out_dev(InteractionSplit(train_file, files["train2015"], images), source.split_seed)
    for name, split in {"train": train, "dev": dev, "test": test}.items():
        if not any(len(image.pairs) for image in split.images):
            raise InputError(f"{split.annotations}: no pairs in the {len(split)} images of {name}: expected some")
    notes = (
        f"dev is {count_of(len(dev), 'image')} of trainval (seed {source.split_seed})",
        f"{rare.sum()} of {len(rare)} interactions are rare: {rule}",
        *([f"boxes of trainval without a size, left out with their pairs: {unsized}"] if unsized else []),
        *([f"images of trainval left out, as a pair has an index beyond the boxes: {left_out}"] if left_out else []),
    )
    return InteractionData(source.name, interactions.names, train, dev, test, notes, interactions=interactions)


def read_matrix(path: Path) -> NDArray[np.bool_]:
    """Return the possible interactions, (117 verbs, 80 objects); raise InputError unless the file is such a matrix."""
    try:
        matrix = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not a NumPy array: {' '.join(str(error).split())[:80]}") from None
    shape = getattr(matrix, "shape", None)
    if shape != (VERBS, len(OBJECTS)):
        raise InputError(f"{path}: shape {shape}: expected ({VERBS}, {len(OBJECTS)}), verbs and objects")
    if not np.isin(matrix, (0, 1)).all() or not matrix.any():
        raise InputError(f"{path}: expected zeros, and ones for the verbs that are possible with an object")
    return np.asarray(matrix == 1)


def _verb_names(source: Source) -> tuple[str, ...]:
    """Read hico_list_vb.txt from the folder of the matrix or of the set: two header lines, then number and name."""
    folder = next(file for file in source.files if file.name == "corre_hico.npy").parent
    path = next((p for p in (folder / "hico_list_vb.txt", source.folder / "hico_list_vb.txt") if p.is_file()), None)
    if path is None:
        return tuple(f"verb-{number}" for number in range(1, VERBS + 1))
    names: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines()[2:], 3):
        match line.split():
            case []:
                continue
            case [verb_number, name] if verb_number == f"{len(names) + 1:03d}":
                names.append(name)
            case _:
                raise InputError(f"{path}:{number}: '{line.strip()[:40]}': expected {len(names) + 1:03d} and a verb")
    if len(names) != VERBS:
        raise InputError(f"{path}: {len(names)} verbs: expected {VERBS}")
    return tuple(names)


def _published_rare(files: Mapping[str, Path], interactions: Interactions) -> NDArray[np.bool_]:
    """Read rare_split.json: HICO-DET's numbers of the rare interactions, which hico_list_hoi.txt names."""
    path, content = files["rare_split.json"], read_json(files["rare_split.json"])
    class_of_number = _class_of_number(files["hico_list_hoi.txt"], interactions)
    numbers = content.get("rare") if isinstance(content, dict) else None
    if not isinstance(numbers, list) or not all(is_integer(number) and number in class_of_number for number in numbers):
        raise InputError(f"{path}: expected a list rare with numbers of interactions from 1 to {len(class_of_number)}")
    rare = np.zeros(len(interactions.classes), np.bool_)
    rare[[class_of_number[number] for number in numbers]] = True
    return rare


def _class_of_number(path: Path, interactions: Interactions) -> dict[int, int]:
    """Return HICO-DET's number of an interaction → class. Lines are number, object and verb."""
    class_of_name = {name: index for index, name in enumerate(interactions.names)}
    class_of_number: dict[int, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        expected = len(class_of_number) + 1
        match line.split():
            case []:
                continue
            case [listed, object, verb] if listed == f"{expected:03d}" and f"{verb} {object}" in class_of_name:
                class_of_number[expected] = class_of_name[f"{verb} {object}"]
            case _:
                raise InputError(f"{path}:{number}: '{line.strip()[:60]}': expected a number, an object and its verb")
    if len(set(class_of_number.values())) != len(class_of_name):
        raise InputError(f"{path}: {len(set(class_of_number.values()))} interactions: expected {len(class_of_name)}")
    return class_of_number


def _read(
    path: Path, folder: Path | None, matrix: NDArray[np.bool_], training: bool = False
) -> tuple[tuple[PairedImage, ...], int]:
    """Return the images of a file and the number of training images left out; errors name the index of the entry."""
    content = read_json(path)
    if not isinstance(content, list):
        raise InputError(f"{path}: expected a list of images")
    names = list_names(folder) if folder is not None else set()
    images, left_out = [], 0
    for index, item in enumerate(content):
        entry = Entry(item, f"{path}: [{index}]")
        name = entry.image_name(folder, names)
        boxes, labels = _boxes(entry)
        if training and _has_absent_box(entry, len(boxes)):
            left_out += 1
            continue
        image = PairedImage(name, boxes, labels, _pairs(entry, labels, matrix))
        if not training and not (sized := _sized(image)).all():
            number = int(np.argmin(sized))
            raise entry.error(
                f"annotations[{number}]: bbox {boxes[number].tolist()} has no width or no height: "
                "expected [left, top, right, bottom]"
            )
        images.append(image)
    if not images:
        raise InputError(f"{path}: no images: expected one at least")
    return tuple(images), left_out


def _has_absent_box(entry: Entry, boxes: int) -> bool:
    """Return whether the index of a pair is beyond the number of boxes."""
    ends = (pair.content.get(key) for pair in _entries(entry, "hoi_annotation") for key in ("subject_id", "object_id"))
    return any(is_integer(end) and end >= boxes for end in ends)


def _sized(image: PairedImage) -> NDArray[np.bool_]:
    """Return whether each box (N,) has a width and a height."""
    return np.asarray((image.boxes[:, 2:] > image.boxes[:, :2]).all(axis=1))


def _without_unsized(image: PairedImage) -> PairedImage:
    """Return an image without its boxes of zero size and their pairs."""
    sized = _sized(image)
    if sized.all():
        return image
    pairs = image.pairs[sized[image.pairs[:, :2]].all(axis=1)]
    pairs[:, :2] = (np.cumsum(sized) - 1)[pairs[:, :2]]
    return replace(image, boxes=image.boxes[sized], labels=image.labels[sized], pairs=pairs)


def _boxes(entry: Entry) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    boxes, labels = [], []
    for annotation in _entries(entry, "annotations"):
        boxes.append(annotation.box("[left, top, right, bottom]"))
        category = annotation.integer("category_id", expected := "one of COCO's ids, 1 to 90")
        if category not in _LABELS:
            raise annotation.error(f"category_id {category}: expected {expected}")
        labels.append(_LABELS[category])
    return np.array(boxes, np.float64).reshape(-1, 4), np.array(labels, np.int64)


def _pairs(entry: Entry, labels: NDArray[np.int64], matrix: NDArray[np.bool_]) -> NDArray[np.int64]:
    pairs = []
    for pair in _entries(entry, "hoi_annotation"):
        subject, object = (
            pair.integer(key, f"the index of one of {len(labels)} boxes", maximum=len(labels) - 1)
            for key in ("subject_id", "object_id")
        )
        verb = pair.integer("category_id", f"a verb, 1 to {VERBS}", minimum=1, maximum=VERBS)
        if labels[subject] != _LABELS[PERSON]:
            raise pair.error(f"subject_id {subject}: expected the box of a person, category_id {PERSON}")
        if not matrix[verb - 1, labels[object]]:
            name = tuple(OBJECTS.values())[labels[object]]
            raise pair.error(f"verb {verb} with {name}: corre_hico.npy has no such interaction")
        pairs.append((subject, object, verb - 1))
    return np.array(pairs, np.int64).reshape(-1, 3)


def _entries(entry: Entry, key: str) -> list[Entry]:
    objects = entry.content.get(key)
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise entry.error(f"expected {key}, a list of objects")
    return [Entry(item, f"{entry.location}: {key}[{index}]") for index, item in enumerate(objects)]
