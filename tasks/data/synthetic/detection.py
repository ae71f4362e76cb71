"""Writers of synthetic images with shapes: boxes in COCO's format, and interactions in HICO-DET's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from dropbench.tasks.data.dataset import Dataset
from dropbench.tasks.data.detection.hico import OBJECTS, PERSON, VERBS

COCO_SHAPES = ("square", "circle", "triangle", "cross")
COCO_ROWS = (100, 20)
"""Number of images of train and test."""
COCO_SIDES = (64, 80, 96)
"""Widths and heights of images, which differ as those of photographs do."""
MAX_SHAPES = 4
"""Maximum number of shapes in an image."""

SHAPES = {"square": 84, "triangle": 53, "cross": 77}
"""COCO's category id for each shape near a person: book, apple, cell phone."""
COLORS = {"circle": (0, 0, 0), "square": (255, 0, 0), "triangle": (0, 0, 255), "cross": (255, 255, 255)}
TOUCHES, WATCHES = 37, 113
"""HICO-DET's verbs: hold for a touched shape, watch for any other."""
HICO_ROWS = (1200, 120)
HICO_SIDES = (112, 120, 128)
PERSON_SIDES, OBJECT_SIDES = (28, 40), (20, 28)
MAX_SHADE = 80
"""Difference of the background's colors from their mean at the image's edges."""
OVERLAP = 3
"""Pixels by which the box of a shape that touches a person overlaps the person's."""

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels."""


def coco(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write a hundred training and twenty test images with one to four shapes each, one class per shape, on gray."""
    *files, train_folder, test_folder = dataset.layouts[0].files
    for part, (file, image_folder) in enumerate(zip(files, (train_folder, test_folder), strict=True)):
        random = np.random.RandomState([seed, part])
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        names = [f"{number:012d}.jpg" for number in range(1, COCO_ROWS[part] + 1)]
        for id, image in enumerate(_images(folder / image_folder, names, COCO_SIDES, _gray, random), 1):
            for shape, (left, top, right, bottom) in _draw_shapes(image, random):
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": id,
                        "category_id": shape + 1,
                        "bbox": [left, top, right - left, bottom - top],
                        "area": (right - left) * (bottom - top),
                        "iscrowd": 0,
                    }
                )
            images.append({"id": id, "file_name": names[id - 1], "width": image.width, "height": image.height})
        categories = [{"id": number, "name": name} for number, name in enumerate(COCO_SHAPES, 1)]
        _write_json(folder / file, {"images": images, "annotations": annotations, "categories": categories})


def hico(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write images with a circle, for a person, and one or two shapes, near it or apart; each forms a pair with it."""
    *files, matrix_file, train_folder, test_folder = dataset.layouts[0].files
    for part, (file, image_folder) in enumerate(zip(files, (train_folder, test_folder), strict=True)):
        random = np.random.RandomState([seed, part])
        split = ("train", "test")[part]
        names = [f"HICO_{split}2015_{number:08d}.jpg" for number in range(1, HICO_ROWS[part] + 1)]
        rows = []
        for id, image in enumerate(_images(folder / image_folder, names, HICO_SIDES, _gradient, random), 1):
            boxes, pairs = _draw_pairs(image, random)
            rows.append({"file_name": names[id - 1], "img_id": id, "annotations": boxes, "hoi_annotation": pairs})
        _write_json(folder / file, rows)
    matrix = np.zeros((VERBS, len(OBJECTS)))
    labels = [list(OBJECTS).index(number) for number in SHAPES.values()]
    for verb in (TOUCHES, WATCHES):
        matrix[verb - 1, labels] = 1
    np.save(folder / matrix_file, matrix)


def _images(
    folder: Path,
    names: Sequence[str],
    sides: Sequence[int],
    background: Callable[[int, int, np.random.RandomState], Image.Image],
    random: np.random.RandomState,
) -> Iterator[Image.Image]:
    """Yield images of random sizes to draw on; each is saved when the next is requested."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        width, height = (int(side) for side in random.choice(sides, 2))
        image = background(width, height, random)
        yield image
        image.save(folder / name, format="JPEG", quality=90)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _gray(width: int, height: int, random: np.random.RandomState) -> Image.Image:
    return Image.new("RGB", (width, height), tuple(random.randint(100, 156, 3).tolist()))


def _gradient(width: int, height: int, random: np.random.RandomState) -> Image.Image:
    """Return a gray background that gets redder to the right and greener to the bottom.

    The color encodes the position, which a DETR trained from scratch needs long to learn otherwise.
    """
    across, down = (np.linspace(-MAX_SHADE, MAX_SHADE, side) for side in (width, height))
    pixels = np.tile(random.randint(112, 144, 3).astype(float), (height, width, 1))
    pixels[:, :, 0] += across
    pixels[:, :, 1] += down[:, None]
    return Image.fromarray(pixels.round().astype(np.uint8))


def _draw_shapes(image: Image.Image, random: np.random.RandomState) -> Iterator[tuple[int, Box]]:
    """Draw one to `MAX_SHAPES` shapes; yield the index of each in `COCO_SHAPES` and its box."""
    draw = ImageDraw.Draw(image)
    for _ in range(random.randint(1, MAX_SHAPES + 1)):
        shape, side = int(random.randint(len(COCO_SHAPES))), int(random.randint(16, 36))
        left, top = (int(random.randint(0, edge - side)) for edge in image.size)
        box = (left, top, left + side, top + side)
        color = tuple(random.choice([0, 255], 3).tolist())
        _draw_shape(draw, COCO_SHAPES[shape], box, color, apex=box[0] + side // 2)
        yield shape, box


def _draw_pairs(image: Image.Image, random: np.random.RandomState) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw a person in the middle, and a shape on one side or on both; return the annotations: boxes and pairs."""
    draw = ImageDraw.Draw(image)
    size = int(random.randint(*PERSON_SIDES))
    x, y = (image.width - size) // 2, int(random.randint(image.height - size + 1))
    person = (x, y, x + size, y + size)
    _draw_shape(draw, "circle", person, COLORS["circle"])
    boxes: list[dict[str, Any]] = [{"bbox": list(person), "category_id": PERSON}]
    pairs: list[dict[str, Any]] = []
    for on_right in random.permutation(2)[: random.randint(1, 3)].tolist():
        touches, shape, side = bool(random.randint(2)), str(random.choice(list(SHAPES))), random.randint(*OBJECT_SIDES)
        left, top = on_right * (image.width - side), random.randint(image.height - side + 1)
        if touches:
            left, top = x + size - OVERLAP if on_right else x - side + OVERLAP, y + (size - side) // 2
        box = (int(left), int(top), int(left) + side, int(top) + side)
        _draw_shape(draw, shape, box, COLORS[shape], apex=(box[0] + box[2] - 1) // 2)
        pairs.append({"subject_id": 0, "object_id": len(boxes), "category_id": TOUCHES if touches else WATCHES})
        boxes.append({"bbox": list(box), "category_id": SHAPES[shape]})
    return boxes, pairs


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, box: Box, color: tuple[int, ...], apex: int = 0) -> None:
    """Draw a shape that fills its box; `apex` is the column of a triangle's top."""
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    third = (box[2] - box[0]) // 3
    if shape == "square":
        draw.rectangle((left, top, right, bottom), fill=color)
    elif shape == "circle":
        draw.ellipse((left, top, right, bottom), fill=color)
    elif shape == "triangle":
        draw.polygon([(left, bottom), (right, bottom), (apex, top)], fill=color)
    else:
        draw.rectangle((left + third, top, right - third, bottom), fill=color)
        draw.rectangle((left, top + third, right, bottom - third), fill=color)
