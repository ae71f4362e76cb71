"""Test batches of object detection that are those of DETR's authors and not mmdet's."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import BatchSampler, DistributedSampler, TensorDataset

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


PUBLISHED = ((1_281_167, 8, 64), (1_281_167, 8, 128), (1_281_167, 32, 128), (118_287, 32, 2), (37_633, 8, 2))
"""Images, GPUs and images per GPU: of T2T-ViT, VOLO, facebookresearch/dropout, DETR and QPIC."""


def sampled(images: int, ranks: int, per_rank: int, epoch: int) -> list[list[int]]:
    """Return the micro-batches of an epoch in the sources, those of all GPUs in a step one after the other."""
    dataset = TensorDataset(torch.zeros(images))
    samplers: list[DistributedSampler[Any]] = [
        DistributedSampler(dataset, ranks, rank, seed=1) for rank in range(ranks)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    steps = zip(*(BatchSampler(sampler, per_rank, drop_last=True) for sampler in samplers), strict=True)
    return [batch for step in steps for batch in step]


def padding(sizes: Sequence[tuple[int, int]], batches: Iterable[Sequence[int]]) -> float:
    """Return the share of padding in the pixels of batches."""
    used = padded = 0
    for batch in batches:
        height, width = (max(sizes[index][side] for index in batch) for side in (0, 1))
        padded += len(batch) * height * width
        used += sum(sizes[index][0] * sizes[index][1] for index in batch)
    return 1 - used / padded


def test_batches_of_an_epoch_are_those_of_the_sources_in_distribution() -> None:
    for images, ranks, per_rank in PUBLISHED:  # as BatchSampler counts them
        assert math.ceil(images / ranks) // per_rank == images // (ranks * per_rank)
    task = make(mixed_shapes=True, empty_images=True, augment=False, batch_size=16, accumulate=8)
    images = task.size("train")
    shapes = ((image.height, image.width) for image in task.splits["train"].images)
    sizes = [(height, width) for height, width in shapes]
    shares: tuple[list[float], list[float]] = ([], [])
    orders = set()
    for number in range(200):
        steps = list(task.epoch(16, task.epoch_seed(number)))
        ours = [part for step in steps for part in task.micro_batches(step, 8)]
        theirs = sampled(images, 8, 2, number)[: len(ours)]  # a last step may be completed by repeated images
        assert [len(batch) for batch in ours] == [len(batch) for batch in theirs] == [2] * len(theirs)
        drawn = [index for batch in ours for index in batch]
        assert len({*drawn}) == len(drawn) == images // 16 * 16
        orders.add(tuple(drawn))
        for share, batches in zip(shares, (ours, theirs), strict=True):
            share.append(padding(sizes, batches))
    assert len(orders) == 200
    (mean, error), (expected, other) = ((np.mean(each), np.std(each) / 200**0.5) for each in shares)
    assert mean > 0.05
    assert abs(mean - expected) < 3 * np.hypot(error, other)


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
