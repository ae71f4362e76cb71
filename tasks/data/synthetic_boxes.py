"""Generated images with boxes in COCO's format: coloured shapes on a grey ground, one class a shape."""

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
"""Widths and heights of images: they differ, as those of photographs do."""
MOST = 4
"""Shapes in an image."""


def coco(folder: Path, dataset: Dataset, seed: int) -> None:
    """A hundred training and twenty test images with one to four shapes each."""
    train_file, test_file, train_folder, test_folder = dataset.layouts[0].files
    for part, (file, below, rows) in enumerate(((train_file, train_folder, ROWS), (test_file, test_folder, TEST_ROWS))):
        (folder / below).mkdir(parents=True, exist_ok=True)
        random = np.random.RandomState([seed, part])
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number in range(1, rows + 1):
            width, height = (int(side) for side in random.choice(SIDES, 2))
            picture = Image.new("RGB", (width, height), tuple(random.randint(100, 156, 3).tolist()))
            name = f"{number:012d}.jpg"
            for shape, box in draw_shapes(picture, random):
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
            picture.save(folder / below / name, format="JPEG", quality=90)
            images.append({"id": number, "file_name": name, "width": width, "height": height})
        categories = [{"id": number, "name": name} for number, name in enumerate(SHAPES, 1)]
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        content = {"images": images, "annotations": annotations, "categories": categories}
        (folder / file).write_text(json.dumps(content))


def draw_shapes(picture: Image.Image, random: np.random.RandomState) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Draw one to `MOST` shapes; gives each one's number in `SHAPES` and its box, left, top, right and bottom."""
    draw = ImageDraw.Draw(picture)
    for _ in range(random.randint(1, MOST + 1)):
        shape, side = int(random.randint(len(SHAPES))), int(random.randint(16, 36))
        left, top = (int(random.randint(0, edge - side)) for edge in picture.size)
        right, bottom = left + side, top + side
        colour = tuple(random.choice([0, 255], 3).tolist())
        inside = (left, top, right - 1, bottom - 1)
        if SHAPES[shape] == "square":
            draw.rectangle(inside, fill=colour)
        elif SHAPES[shape] == "circle":
            draw.ellipse(inside, fill=colour)
        elif SHAPES[shape] == "triangle":
            draw.polygon([(left, bottom - 1), (right - 1, bottom - 1), (left + side // 2, top)], fill=colour)
        else:
            third = side // 3
            draw.rectangle((left + third, top, right - 1 - third, bottom - 1), fill=colour)
            draw.rectangle((left, top + third, right - 1, bottom - 1 - third), fill=colour)
        yield shape, (left, top, right, bottom)
