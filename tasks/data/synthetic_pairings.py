"""Generated images in HICO-DET's format: a circle, which stands for a person, and shapes that it touches or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tasks.data.dataset import Dataset
from tasks.data.hico import OBJECTS, PERSON, VERBS

SHAPES = {"square": 84, "triangle": 53, "cross": 77}
"""COCO's number that each shape goes by: book, apple, cell phone."""
COLOURS = {"circle": (0, 0, 0), "square": (255, 0, 0), "triangle": (0, 0, 255), "cross": (255, 255, 255)}
TOUCHES, APART = 37, 113
"""Verbs of HICO-DET: hold, and watch for what is not touched."""
ROWS, TEST_ROWS = 1200, 120
SIDES = (96, 112, 128)
"""Widths and heights of images: they differ, as those of photographs do."""
PERSON_SIDES, OBJECT_SIDES = (28, 40), (20, 32)
SHADE = 80
"""By how much the ground's colours differ from their mean at its edges."""
GAP = 8
"""Pixels at least between shapes that do not touch."""

_Box = tuple[int, int, int, int]


def hico(folder: Path, dataset: Dataset, seed: int) -> None:
    """Images with a circle and one or two shapes each; what the circle does with either is one pair."""
    train_file, test_file, matrix_file, train_folder, test_folder = dataset.layouts[0].files
    parts = ((train_file, train_folder, "train", ROWS), (test_file, test_folder, "test", TEST_ROWS))
    for part, (file, below, split, rows) in enumerate(parts):
        (folder / below).mkdir(parents=True)
        (folder / file).parent.mkdir(exist_ok=True)
        random = np.random.RandomState([seed, part])
        images: list[dict[str, Any]] = []
        for number in range(1, rows + 1):
            width, height = (int(side) for side in random.choice(SIDES, 2))
            picture = _ground(width, height, random)
            boxes, pairs = _draw(picture, random)
            name = f"HICO_{split}2015_{number:08d}.jpg"
            picture.save(folder / below / name, format="JPEG", quality=90)
            images.append({"file_name": name, "img_id": number, "annotations": boxes, "hoi_annotation": pairs})
        (folder / file).write_text(json.dumps(images))
    matrix = np.zeros((VERBS, len(OBJECTS)))
    labels = [list(OBJECTS).index(number) for number in SHAPES.values()]
    for verb in (TOUCHES, APART):
        matrix[verb - 1, labels] = 1
    np.save(folder / matrix_file, matrix)


def _ground(width: int, height: int, random: np.random.RandomState) -> Image.Image:
    """A grey ground that gets redder to the right and greener towards the bottom.

    A DETR that is trained from nothing learns for long where things are; here the ground says it.
    """
    across, down = (np.linspace(-SHADE, SHADE, side) for side in (width, height))
    pixels = np.tile(random.randint(112, 144, 3).astype(float), (height, width, 1))
    pixels[:, :, 0] += across
    pixels[:, :, 1] += down[:, None]
    return Image.fromarray(pixels.round().astype(np.uint8))


def _draw(picture: Image.Image, random: np.random.RandomState) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw one image; gives what is in its annotations: boxes and pairs."""
    draw = ImageDraw.Draw(picture)
    person = _placed(picture, int(random.randint(*PERSON_SIDES)), random)
    draw.ellipse((person[0], person[1], person[2] - 1, person[3] - 1), fill=COLOURS["circle"])
    boxes: list[dict[str, Any]] = [{"bbox": list(person), "category_id": PERSON}]
    pairs: list[dict[str, Any]] = []
    taken = [person]
    for _ in range(random.randint(1, 3)):
        touches, shape = bool(random.randint(2)), str(random.choice(list(SHAPES)))
        box = next(_free(picture, person, taken, touches, random), None)
        if box is None:  # no room for another
            continue
        _draw_shape(draw, shape, box)
        taken.append(box)
        pairs.append({"subject_id": 0, "object_id": len(boxes), "category_id": TOUCHES if touches else APART})
        boxes.append({"bbox": list(box), "category_id": SHAPES[shape]})
    return boxes, pairs


def _free(
    picture: Image.Image, person: _Box, taken: list[_Box], touches: bool, random: np.random.RandomState
) -> Iterator[_Box]:
    """Places for a shape, at the person's edge or away from it, and away from all others."""
    for _ in range(200):
        side = int(random.randint(*OBJECT_SIDES))
        box = _beside(person, side, random) if touches else _placed(picture, side, random)
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= picture.width and box[3] <= picture.height
        others = taken[1:] if touches else taken
        if inside and all(_gap(box, other) >= GAP for other in others):
            yield box


def _placed(picture: Image.Image, side: int, random: np.random.RandomState) -> _Box:
    left, top = (int(random.randint(0, edge - side + 1)) for edge in picture.size)
    return left, top, left + side, top + side


def _beside(person: _Box, side: int, random: np.random.RandomState) -> _Box:
    """A square that shares some pixels with the middle of one of the person's edges, where the circle is."""
    middle = [(person[axis] + person[axis + 2] - side) // 2 + int(random.randint(-3, 4)) for axis in (0, 1)]
    axis, before = int(random.randint(2)), bool(random.randint(2))
    middle[axis] = person[axis] - side + 3 if before else person[axis + 2] - 3
    return middle[0], middle[1], middle[0] + side, middle[1] + side


def _gap(one: _Box, other: _Box) -> int:
    """Pixels between two boxes along the axis where there are more of them."""
    return max(max(one[axis], other[axis]) - min(one[axis + 2], other[axis + 2]) for axis in (0, 1))


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, box: _Box) -> None:
    colour = COLOURS[shape]
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    third = (box[2] - box[0]) // 3
    if shape == "square":
        draw.rectangle((left, top, right, bottom), fill=colour)
    elif shape == "triangle":
        draw.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=colour)
    else:
        draw.rectangle((left + third, top, right - third, bottom), fill=colour)
        draw.rectangle((left, top + third, right, bottom - third), fill=colour)
