"""Average precision of boxes by COCO's evaluation, through mmdet's CocoMetric."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mmdet.datasets.api_wrappers import COCO
from mmdet.evaluation import CocoMetric

from adapters.detr import in_mmdet
from tasks.outlines.detection import AP_NAMES

Prediction = Mapping[str, Any]
"""Of one image: `img_id`; `bboxes` (N, 4): left, top, right, bottom in pixels; `scores` (N,); `labels` (N,) from 0."""


def ground_truth(annotations: Path, images: Iterable[int]) -> COCO:
    """What a file of annotations says of some images, as COCO's evaluation takes it."""
    content = json.loads(annotations.read_bytes())
    wanted = set(images)
    content["images"] = [image for image in content["images"] if image["id"] in wanted]
    # Outlines are most of the file, and boxes are held against boxes.
    content["annotations"] = [
        {key: value for key, value in one.items() if key != "segmentation"}
        for one in content["annotations"]
        if one["image_id"] in wanted
    ]
    truth = COCO()
    truth.dataset = content
    with redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def average_precision(truth: COCO, category_ids: Sequence[int], predictions: Sequence[Prediction]) -> dict[str, float]:
    """The metrics of `AP_NAMES` in percent, with the three digits that COCO's evaluation prints.

    Args:
        truth: of the images.
        category_ids: the number of each label in the annotations.
        predictions: one for each image.
    """
    with in_mmdet(), redirect_stdout(io.StringIO()):  # which gets a table of its own
        metric = CocoMetric(metric="bbox")
        metric._coco_api, metric.cat_ids = truth, list(category_ids)
        found = metric.compute_metrics([({}, prediction) for prediction in predictions])
    values = {ours: found.get(f"bbox_{theirs}", 0.0) for ours, theirs in AP_NAMES.items()}
    return {name: 100 * value for name, value in values.items() if value >= 0}
