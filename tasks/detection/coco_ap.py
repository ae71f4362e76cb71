"""Average precision of boxes by COCO's evaluation, computed by mmdet's CocoMetric."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mmdet.datasets.api_wrappers import COCO
from mmdet.evaluation import CocoMetric

from adapters.vision.detr import in_mmdet
from tasks.detection.spec import AP_NAMES

Prediction = Mapping[str, Any]
"""Detections in one image: `img_id`; `bboxes` (N, 4): left, top, right, bottom in pixels; `scores` (N,); `labels` (N,)
from 0."""


def ground_truth(annotations: Path, images: Iterable[int]) -> COCO:
    """Return the annotations of some images from a COCO file, for COCO's evaluation."""
    content = json.loads(annotations.read_bytes())
    image_ids = set(images)
    content["images"] = [image for image in content["images"] if image["id"] in image_ids]
    # Segmentations are most of the file, and the evaluation of boxes does not need them.
    content["annotations"] = [
        {key: value for key, value in annotation.items() if key != "segmentation"}
        for annotation in content["annotations"]
        if annotation["image_id"] in image_ids
    ]
    truth = COCO()
    truth.dataset = content
    with redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def average_precision(truth: COCO, category_ids: Sequence[int], predictions: Sequence[Prediction]) -> dict[str, float]:
    """Return the metrics of `AP_NAMES` in percent, with the three digits that COCO's evaluation prints.

    Args:
        truth: the annotations of the images.
        category_ids: the category id of each label.
        predictions: the detections of each image.
    """
    with in_mmdet(), redirect_stdout(io.StringIO()):  # COCO's evaluation prints a table
        metric = CocoMetric(metric="bbox")
        metric._coco_api, metric.cat_ids = truth, list(category_ids)
        computed = metric.compute_metrics([({}, prediction) for prediction in predictions])
    values = {name: computed.get(f"bbox_{coco_name}", 0.0) for name, coco_name in AP_NAMES.items()}
    return {name: 100 * value for name, value in values.items() if value >= 0}
