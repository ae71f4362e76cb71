"""Test object detection: mmdet's pipelines, losses and batches, evaluation, and resumed training."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmdet.datasets import CocoDataset
from mmdet.registry import TRANSFORMS

from dropbench.adapters.vision.detr import detr_config, in_mmdet
from dropbench.harness.errors import InputError
from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data.locate import locate
from dropbench.tasks.detection.mmdet_pipeline import scale_boxes, scaled_pipelines
from dropbench.tasks.detection.object_detection import ObjectDetection, average_precision, ground_truth
from dropbench.tasks.detection.spec import ObjectDetectionSpec
from tests.input_errors import one_line
from tests.tasks.making import CPU, DETR, task_of, trial_of


def detr_trial(data: str = "coco-synthetic", settings: Settings = CPU, **overrides: Any) -> Trial:
    return trial_of("object-detection", data, "detr", {**DETR, **overrides}, settings)


def make(**overrides: Any) -> ObjectDetection:
    return task_of(ObjectDetection, detr_trial(**overrides))


@pytest.fixture(scope="module")
def task() -> ObjectDetection:
    return make()


def test_the_pipelines_equal_those_of_mmdet_with_scaled_sizes() -> None:
    config = detr_config()
    whole, half = scaled_pipelines(800), scaled_pipelines(400)
    before_crop = whole["train"][3]["transforms"][1][0]
    before_crop["scales"] = [(shorter, 1333) for shorter, _ in before_crop["scales"]]
    assert whole == {"train": list(config.train_pipeline), "test": list(config.test_pipeline)}
    scales = half["train"][3]["transforms"][0][0]["scales"]
    assert (scales[0], scales[-1]) == ((240, 666), (400, 666))
    assert half["train"][3]["transforms"][1][1]["crop_size"] == (192, 300)
    assert half["test"][1]["scale"] == (666, 400)
    assert half["train"][2] == config.train_pipeline[2]


def test_a_wide_image_is_resized_by_its_shorter_side_before_it_is_cropped() -> None:
    with in_mmdet():
        resize = TRANSFORMS.build(scaled_pipelines(800, "pillow")["train"][3]["transforms"][1][0])
        height, width = resize({"img": np.zeros((40, 200, 3), np.uint8)})["img_shape"]
    assert height in (400, 500, 600)
    assert width == 5 * height


@pytest.mark.parametrize("split", ["train", "test"])
def test_samples_equal_those_of_mmdets_data_set(split: str) -> None:
    task = make(image_size=800)
    config, source = detr_config(), locate("coco-synthetic")
    with in_mmdet():
        theirs = CocoDataset(
            ann_file=str(source.files[split == "test"]),
            data_prefix={"img": str(source.files[2 + (split == "test")])},
            metainfo={"classes": task.classes},
            pipeline=config.train_pipeline if split == "train" else config.test_pipeline,
            test_mode=split == "test",
        )
    by_id = {theirs.get_data_info(index)["img_id"]: index for index in range(len(theirs))}
    for index in range(3):
        seed_all(index)
        ours = task.batch("train" if split == "train" else "test", [index])
        seed_all(index)
        with in_mmdet():
            sample = theirs[by_id[ours["meta"][0]["img_id"]]]
        assert torch.equal(ours["images"][0], sample["inputs"])
        truth = sample["data_samples"].gt_instances
        assert torch.equal(ours["bboxes"][0], truth.bboxes.tensor)
        assert torch.equal(ours["labels"][0], truth.labels)
        assert ours["meta"][0]["img_shape"] == sample["data_samples"].img_shape


def test_training_without_augmentation_prepares_images_as_in_evaluation() -> None:
    """The boxes are scaled with their images."""
    task = make(augment=False)
    resized = set()
    for index in range(8):
        sample = task.sample("train", index)
        meta = sample["meta"]
        image, path = task.splits["train"].images[index], task.splits["train"].path(index)
        pixels, _, _ = task.images.load(path, {"img_id": image.id, "instances": []}, training=False)
        assert torch.equal(sample["images"], pixels)
        assert np.allclose(sample["bboxes"], scale_boxes(image.boxes, meta["scale_factor"]), atol=1e-3)
        resized.add(meta["img_shape"] != meta["ori_shape"])
    assert True in resized


def test_the_loss_is_the_sum_of_mmdets_losses(task: ObjectDetection) -> None:
    model = task.build_model().eval()
    batch = task.batch("train", [0, 1, 2])
    with in_mmdet():
        losses = model(*task.preprocess(batch), mode="loss")
    values = [float(value.detach()) for name, value in losses.items() if "loss" in name]
    assert len(values) == 3  # of one decoder layer: class, L1, GIoU
    assert float(task.loss(model, batch).detach()) == pytest.approx(sum(values), rel=1e-6)
    assert task.num_loss_terms(batch) == 3


def test_an_epoch_has_each_image_once_and_keeps_shapes_together(task: ObjectDetection) -> None:
    batches = list(task.epoch(4, 1))
    assert len(batches) == task.steps_per_epoch(4)
    indices = [index for batch in batches for index in batch]
    assert len(set(indices)) == len(indices) == 4 * len(batches)
    assert list(task.epoch(4, 1)) == batches != list(task.epoch(4, 2))
    images = task.splits["train"].images
    upright = [{images[index].width < images[index].height for index in batch} for batch in batches]
    assert sum(len(kinds) > 1 for kinds in upright) <= 1  # the remaining images at the end are mixed
    assert [len(batch) for batch in task.epoch(10_000, 1)] == [task.size("train")]


def test_predictions_are_in_the_pixels_of_the_image() -> None:
    task = make(image_size=32)
    model = task.build_model().eval()
    with torch.no_grad():
        (prediction,) = task.predict(model, task.batch("test", [0]))
        values = task.evaluate(model, "test", (task.batch("test", part) for part in task.evaluation_batches("test", 4)))
    image = task.splits["test"].images[0]
    assert prediction["img_id"] == image.id
    assert prediction["bboxes"].shape == (6, 4)
    assert prediction["bboxes"][:, [0, 2]].max() <= image.width
    assert prediction["bboxes"][:, [1, 3]].max() <= image.height
    assert 0 <= values["ap"] <= 100


def test_perfect_predictions_have_perfect_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make()

    def perfect(model: Any, batch: dict[str, list[Any]]) -> list[dict[str, Any]]:
        predictions = []
        for meta in batch["meta"]:
            (image,) = [image for image in task.splits["test"].images if image.id == meta["img_id"]]
            scores = np.ones(len(image.labels))
            predictions.append({"img_id": image.id, "bboxes": image.boxes, "scores": scores, "labels": image.labels})
        return predictions

    monkeypatch.setattr(task, "predict", perfect)
    batches = [task.batch("test", part) for part in task.evaluation_batches("test", 4)]
    for part in (batches, batches[:5], batches):  # a subset of the images is evaluated by itself
        assert task.evaluate(torch.nn.Identity(), "test", part)["ap"] == pytest.approx(100)


def test_a_damaged_image_is_reported_by_name(task: ObjectDetection, tmp_path: Path) -> None:
    shutil.copytree(locate("coco-synthetic").folder, tmp_path, dirs_exist_ok=True)
    name = task.splits["test"].images[3].name
    (tmp_path / "val2017" / name).write_bytes(b"\xff\xd8\xff\xe0 cut")
    settings = Settings(device="cpu", folders={"coco": tmp_path})
    damaged = task_of(ObjectDetection, detr_trial("coco", settings), settings)
    with one_line(f"{name}: the image cannot be read"):
        damaged.batch("test", [3])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.frozen": True}, "a frozen backbone with random weights learns nothing: expected `--weights`"),
        ({"model.embed_dim": 30}, "embed_dim=30: expected a multiple of 4"),
        ({"image_size": 3}, "image_size"),
    ],
)
def test_invalid_options_are_refused_before_a_trial_is_queued(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        detr_trial(**overrides)


def test_the_shorter_paper_preset_equals_mmdets_configuration() -> None:
    trial = trial_of("object-detection", "coco-synthetic", "detr", {"model.frozen": False}, preset="paper-150")
    recipe = trial.recipe
    config = detr_config()
    optimizer = config.optim_wrapper
    assert (recipe["lr"], recipe["weight_decay"]) == (optimizer.optimizer.lr, optimizer.optimizer.weight_decay)
    assert recipe["clip_norm"] == optimizer.clip_grad.max_norm
    assert recipe["backbone_lr"] == optimizer.paramwise_cfg.custom_keys.backbone.lr_mult
    assert recipe["epochs"] == config.max_epochs
    assert round(recipe["lr_drop"] * recipe["epochs"]) == config.param_scheduler[0].milestones[0]
    assert recipe["batch_size"] == config.auto_scale_lr.base_batch_size
    assert recipe["model"] == {"frozen": False}


COCO_EXAMPLE = (50.5, 69.7, 57.3, 58.6, 51.9, 50.1)
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
    values = average_precision(ground_truth(annotations, frozenset(by_image)), ids, predictions)
    assert tuple(round(values[metric.name], 1) for metric in ObjectDetectionSpec.metrics) == COCO_EXAMPLE


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


def test_the_precision_of_known_detections(truth_file: Path) -> None:
    content = json.loads(truth_file.read_text())  # the evaluation completes annotations without ids, areas and crowds
    kept = [{key: entry[key] for key in ("image_id", "category_id", "bbox")} for entry in content["annotations"]]
    truth_file.write_text(json.dumps({**content, "annotations": [{**entry, "id": 0} for entry in kept]}))
    boxes = np.array([[100.0, 0, 150, 50], [0, 100, 50, 150], [0, 0, 50, 50], [100, 100, 150, 150]])
    for number, labels, expected in ((4, [0, 0, 0, 1], (100 / 3 + 100) / 2), (3, [0, 0, 0], 100 / 6), (0, [], 0)):
        scores = np.linspace(0.9, 0.6, number)
        prediction = {"img_id": 5, "bboxes": boxes[:number], "scores": scores, "labels": np.array(labels, int)}
        values = average_precision(ground_truth(truth_file, frozenset({5})), (2, 9), [prediction])
        # The data have no small or large box.
        assert values == pytest.approx(dict.fromkeys(("ap", "ap50", "ap75", "ap-medium"), expected), abs=1e-9)


def test_a_split_without_boxes_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make()
    crowds = tuple(replace(image, crowd=np.ones_like(image.crowd)) for image in task.data.dev.images)
    monkeypatch.setattr(task, "read_data", lambda kind: replace(task.data, dev=replace(task.data.dev, images=crowds)))
    with pytest.raises(InputError, match="no box in the images of dev: expected one at least"):
        task.setup()
