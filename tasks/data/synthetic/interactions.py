"""Writer of synthetic images in HICO-DET's format: a circle, which represents a person, and shapes near it or apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tasks.data.dataset import Dataset
from tasks.data.detection.hico import OBJECTS, PERSON, VERBS

SHAPES = {"square": 84, "triangle": 53, "cross": 77}
"""COCO's category id for each shape: book, apple, cell phone."""
COLORS = {"circle": (0, 0, 0), "square": (255, 0, 0), "triangle": (0, 0, 255), "cross": (255, 255, 255)}
TOUCHES, WATCHES = 37, 113
"""HICO-DET's verbs: hold for a touched shape, watch for any other."""
ROWS, TEST_ROWS = 1200, 120
SIDES = (96, 112, 128)
"""Widths and heights of images, which differ as those of photographs do."""
PERSON_SIDES, OBJECT_SIDES = (28, 40), (20, 32)
MAX_SHADE = 80
"""Difference of the background's colors from their mean at the image's edges."""
MIN_GAP = 8
"""Minimum number of pixels between shapes that do not touch."""

_Box = tuple[int, int, int, int]


def hico(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write images with a circle and one or two shapes; each shape forms a pair with the circle."""
    train_file, test_file, matrix_file, train_folder, test_folder = dataset.layouts[0].files
    parts = ((train_file, train_folder, "train", ROWS), (test_file, test_folder, "test", TEST_ROWS))
    for part, (file, image_folder, split, rows) in enumerate(parts):
        (folder / image_folder).mkdir(parents=True)
        (folder / file).parent.mkdir(exist_ok=True)
        random = np.random.RandomState([seed, part])
        images: list[dict[str, Any]] = []
        for number in range(1, rows + 1):
            width, height = (int(side) for side in random.choice(SIDES, 2))
            image = _background(width, height, random)
            boxes, pairs = _draw(image, random)
            name = f"HICO_{split}2015_{number:08d}.jpg"
            image.save(folder / image_folder / name, format="JPEG", quality=90)
            images.append({"file_name": name, "img_id": number, "annotations": boxes, "hoi_annotation": pairs})
        (folder / file).write_text(json.dumps(images))
    matrix = np.zeros((VERBS, len(OBJECTS)))
    labels = [list(OBJECTS).index(number) for number in SHAPES.values()]
    for verb in (TOUCHES, WATCHES):
        matrix[verb - 1, labels] = 1
    np.save(folder / matrix_file, matrix)


def _background(width: int, height: int, random: np.random.RandomState) -> Image.Image:
    """Return a gray background that gets redder to the right and greener to the bottom.

    The color encodes the position, which a DETR trained from scratch needs long to learn otherwise.
    """
    across, down = (np.linspace(-MAX_SHADE, MAX_SHADE, side) for side in (width, height))
    pixels = np.tile(random.randint(112, 144, 3).astype(float), (height, width, 1))
    pixels[:, :, 0] += across
    pixels[:, :, 1] += down[:, None]
    return Image.fromarray(pixels.round().astype(np.uint8))


def _draw(image: Image.Image, random: np.random.RandomState) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw the shapes of one image; return its annotations: boxes and pairs."""
    draw = ImageDraw.Draw(image)
    person = _random_box(image, int(random.randint(*PERSON_SIDES)), random)
    draw.ellipse((person[0], person[1], person[2] - 1, person[3] - 1), fill=COLORS["circle"])
    boxes: list[dict[str, Any]] = [{"bbox": list(person), "category_id": PERSON}]
    pairs: list[dict[str, Any]] = []
    boxes_so_far = [person]
    for _ in range(random.randint(1, 3)):
        touches, shape = bool(random.randint(2)), str(random.choice(list(SHAPES)))
        box = next(_free_boxes(image, person, boxes_so_far, touches, random), None)
        if box is None:  # no space for another shape
            continue
        _draw_shape(draw, shape, box)
        boxes_so_far.append(box)
        pairs.append({"subject_id": 0, "object_id": len(boxes), "category_id": TOUCHES if touches else WATCHES})
        boxes.append({"bbox": list(box), "category_id": SHAPES[shape]})
    return boxes, pairs


def _free_boxes(
    image: Image.Image, person: _Box, boxes_so_far: list[_Box], touches: bool, random: np.random.RandomState
) -> Iterator[_Box]:
    """Yield boxes for a shape, at the person's edge or apart from it, and apart from all other shapes."""
    for _ in range(200):
        side = int(random.randint(*OBJECT_SIDES))
        box = _touching_box(person, side, random) if touches else _random_box(image, side, random)
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= image.width and box[3] <= image.height
        others = boxes_so_far[1:] if touches else boxes_so_far
        if inside and all(_gap(box, second) >= MIN_GAP for second in others):
            yield box


def _random_box(image: Image.Image, side: int, random: np.random.RandomState) -> _Box:
    left, top = (int(random.randint(0, edge - side + 1)) for edge in image.size)
    return left, top, left + side, top + side


def _touching_box(person: _Box, side: int, random: np.random.RandomState) -> _Box:
    """Return a square that overlaps the middle of an edge of the person's box, where the circle is."""
    corner = [(person[axis] + person[axis + 2] - side) // 2 + int(random.randint(-3, 4)) for axis in (0, 1)]
    axis, before = int(random.randint(2)), bool(random.randint(2))
    corner[axis] = person[axis] - side + 3 if before else person[axis + 2] - 3
    return corner[0], corner[1], corner[0] + side, corner[1] + side


def _gap(first: _Box, second: _Box) -> int:
    """Return the pixels between two boxes along the axis with more of them."""
    return max(max(first[axis], second[axis]) - min(first[axis + 2], second[axis + 2]) for axis in (0, 1))


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, box: _Box) -> None:
    color = COLORS[shape]
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    third = (box[2] - box[0]) // 3
    if shape == "square":
        draw.rectangle((left, top, right, bottom), fill=color)
    elif shape == "triangle":
        draw.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=color)
    else:
        draw.rectangle((left + third, top, right - third, bottom), fill=color)
        draw.rectangle((left, top + third, right, bottom - third), fill=color)
