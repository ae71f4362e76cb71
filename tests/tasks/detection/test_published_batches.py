"""Test batches of object detection that are those of DETR's authors and not mmdet's."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.locate import locate
from dropbench.tasks.detection.object_detection import ObjectDetection
from tests.tasks.detection.test_object_detection import detr_trial, make
from tests.tasks.making import task_of


def test_batches_of_the_authors_mix_shapes_and_have_images_without_boxes(tmp_path: Path) -> None:
    shutil.copytree(locate("coco-synthetic").folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "annotations" / "instances_train2017.json"
    content = json.loads(file.read_text())
    content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] > 30]
    file.write_text(json.dumps(content))
    settings = Settings(device="cpu", folders={"coco": tmp_path})
    options: tuple[dict[str, Any], ...] = ({}, {"mixed_shapes": True, "empty_images": True})
    plain, mixed = (task_of(ObjectDetection, detr_trial("coco", settings, **each), settings) for each in options)
    train = mixed.splits["train"]
    assert len(train) > plain.size("train") + 20
    batches = list(mixed.epoch(4, 1))
    assert len({index for batch in batches for index in batch}) == 4 * mixed.steps_per_epoch(4)
    upright = [{train.images[index].width < train.images[index].height for index in batch} for batch in batches]
    assert sum(len(kinds) > 1 for kinds in upright) > len(batches) / 2
    empty = [index for index, image in enumerate(train.images) if not len(image.labels)]
    assert torch.isfinite(mixed.loss(mixed.build_model(), mixed.batch("train", empty[:2])))


@pytest.mark.parametrize("split", ["train", "test"])
def test_images_are_resized_by_pillow(split: Split) -> None:
    by_pillow, by_opencv = (make(image_size=32, augment=False, **each) for each in ({"resize_backend": "pillow"}, {}))
    pixels = by_pillow.sample(split, 0)["images"]
    height, width = pixels.shape[-2:]
    with Image.open(by_pillow.splits[split].path(0)) as image:
        expected = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
    assert np.abs(pixels.flip(0).permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1
    assert not torch.equal(pixels, by_opencv.sample(split, 0)["images"])


def test_images_are_evaluated_in_padded_batches() -> None:
    """Images of one size are predicted as alone; those of a padded one do not depend on the other image."""
    task = make(evaluation_batch=2, image_size=64)
    size = task.size("test")
    parts = list(task.evaluation_batches("test", 7))
    assert [index for part in parts for index in part] == [*range(size)]
    assert {len(part) for part in parts[:-1]} == {2}
    shapes = [task.sample("test", index)["images"].shape for index in range(size)]
    model = task.build_model().eval()

    def boxes(*indices: int) -> Any:
        with torch.no_grad():
            return task.predict(model, task.batch("test", indices))[0]["bboxes"]

    alike = next(index for index in range(1, size) if shapes[index] == shapes[0])
    others = [index for index in range(1, size) if shapes[index] != shapes[0]]
    pair = next(pair for pair in itertools.combinations(others, 2) if shapes[pair[0]] == shapes[pair[1]])
    np.testing.assert_allclose(boxes(0, alike), boxes(0), atol=1e-3)
    np.testing.assert_allclose(boxes(0, pair[0]), boxes(0, pair[1]), atol=1e-3)
