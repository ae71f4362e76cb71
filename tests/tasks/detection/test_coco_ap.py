"""Compare COCO's average precision with the figures published with its code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tasks.detection.coco_ap import average_precision, ground_truth
from tasks.detection.spec import ObjectDetectionSpec

GOLDEN = (50.5, 69.7, 57.3, 58.6, 51.9, 50.1)
"""AP, AP50, AP75, and AP of small, medium and large boxes, in percent, of the detections in COCO's repository."""


def test_the_published_example_gives_the_published_figures() -> None:
    folder = Path(os.environ.get("DROPBENCH_DATA", "data")) / "coco_eval_golden"
    if not folder.is_dir():
        pytest.skip("no coco_eval_golden in DROPBENCH_DATA")
    annotations = folder / "instances_val2014_100.json"
    content = json.loads(annotations.read_text())
    ids = sorted(category["id"] for category in content["categories"])
    by_image: dict[int, list[dict[str, object]]] = {image["id"]: [] for image in content["images"]}
    for detection in json.loads((folder / "instances_val2014_fakebbox100_results.json").read_text()):
        by_image[detection["image_id"]].append(detection)
    predictions = []
    for image, detections in by_image.items():
        boxes = np.array([detection["bbox"] for detection in detections], np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        scores = np.array([detection["score"] for detection in detections])
        labels = np.array([ids.index(detection["category_id"]) for detection in detections])
        predictions.append({"img_id": image, "bboxes": boxes, "scores": scores, "labels": labels})
    values = average_precision(ground_truth(annotations, by_image), ids, predictions)
    assert tuple(round(values[metric.name], 1) for metric in ObjectDetectionSpec.metrics) == GOLDEN


@pytest.fixture
def truth_file(tmp_path: Path) -> Path:
    """Write annotations of two images and two classes; the second image is not evaluated."""
    box = {"iscrowd": 0, "area": 2500.0}
    content = {
        "images": [{"id": 5, "width": 200, "height": 200}, {"id": 6, "width": 200, "height": 200}],
        "annotations": [
            {"id": 1, "image_id": 5, "category_id": 2, "bbox": [0, 0, 50, 50], **box},
            {"id": 2, "image_id": 5, "category_id": 9, "bbox": [100, 100, 50, 50], **box},
            {"id": 3, "image_id": 6, "category_id": 9, "bbox": [0, 0, 50, 50], **box},
        ],
        "categories": [{"id": 9, "name": "b"}, {"id": 2, "name": "a"}],
    }
    file = tmp_path / "annotations.json"
    file.write_text(json.dumps(content))
    return file


def test_correct_boxes_score_100_and_wrong_classes_0(truth_file: Path) -> None:
    boxes = np.array([[0.0, 0, 50, 50], [100, 100, 150, 150]])
    for labels, expected in (([0, 1], 100.0), ([1, 0], 0.0), ([0, 0], 50.0)):
        predictions = [{"img_id": 5, "bboxes": boxes, "scores": np.array([0.9, 0.8]), "labels": np.array(labels)}]
        values = average_precision(ground_truth(truth_file, [5]), (2, 9), predictions)
        assert values["ap"] == pytest.approx(expected)
        assert values["ap-medium"] == pytest.approx(expected)
        assert set(values) == {"ap", "ap50", "ap75", "ap-medium"}  # the data have no small or large box


def test_no_detections_score_0(truth_file: Path) -> None:
    nothing = {"img_id": 5, "bboxes": np.empty((0, 4)), "scores": np.empty(0), "labels": np.empty(0, np.int64)}
    assert average_precision(ground_truth(truth_file, [5]), (2, 9), [nothing])["ap"] == 0
