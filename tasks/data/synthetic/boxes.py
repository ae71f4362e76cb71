"""Writer of synthetic images with boxes in COCO's format: colored shapes on gray, one class per shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tasks.data.dataset import Dataset

SHAPES = ("square", "circle", "triangle", "cross")
ROWS, TEST_ROWS = 100, 20
SIDES = (64, 80, 96)
"""Widths and heights of images, which differ as those of photographs do."""
MAX_SHAPES = 4
"""Maximum number of shapes in an image."""


def coco(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write a hundred training and twenty test images with one to four shapes each."""
    train_file, test_file, train_folder, test_folder = dataset.layouts[0].files
    parts = ((train_file, train_folder, ROWS), (test_file, test_folder, TEST_ROWS))
    for part, (file, image_folder, rows) in enumerate(parts):
        (folder / image_folder).mkdir(parents=True, exist_ok=True)
        random = np.random.RandomState([seed, part])
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number in range(1, rows + 1):
            width, height = (int(side) for side in random.choice(SIDES, 2))
            image = Image.new("RGB", (width, height), tuple(random.randint(100, 156, 3).tolist()))
            name = f"{number:012d}.jpg"
            for shape, box in draw_shapes(image, random):
                left, top, right, bottom = box
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number,
                        "category_id": shape + 1,
                        "bbox": [left, top, right - left, bottom - top],
                        "area": (right - left) * (bottom - top),
                        "iscrowd": 0,
                    }
                )
            image.save(folder / image_folder / name, format="JPEG", quality=90)
            images.append({"id": number, "file_name": name, "width": width, "height": height})
        categories = [{"id": number, "name": name} for number, name in enumerate(SHAPES, 1)]
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        content = {"images": images, "annotations": annotations, "categories": categories}
        (folder / file).write_text(json.dumps(content))


def draw_shapes(image: Image.Image, random: np.random.RandomState) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Draw one to `MAX_SHAPES` shapes; yield the index of each in `SHAPES` and its box: left, top, right, bottom."""
    draw = ImageDraw.Draw(image)
    for _ in range(random.randint(1, MAX_SHAPES + 1)):
        shape, side = int(random.randint(len(SHAPES))), int(random.randint(16, 36))
        left, top = (int(random.randint(0, edge - side)) for edge in image.size)
        right, bottom = left + side, top + side
        color = tuple(random.choice([0, 255], 3).tolist())
        inside = (left, top, right - 1, bottom - 1)
        if SHAPES[shape] == "square":
            draw.rectangle(inside, fill=color)
        elif SHAPES[shape] == "circle":
            draw.ellipse(inside, fill=color)
        elif SHAPES[shape] == "triangle":
            draw.polygon([(left, bottom - 1), (right - 1, bottom - 1), (left + side // 2, top)], fill=color)
        else:
            third = side // 3
            draw.rectangle((left + third, top, right - 1 - third, bottom - 1), fill=color)
            draw.rectangle((left, top + third, right - 1, bottom - 1 - third), fill=color)
        yield shape, (left, top, right, bottom)
