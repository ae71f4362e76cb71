"""Test interaction detection: pairs under flips and crops, training, evaluation, error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmdet.structures.bbox import HorizontalBoxes
from mmengine.structures import InstanceData

from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.tasks.data.detection.interactions import PairedImage
from dropbench.tasks.data.synthetic.detection import TOUCHES, WATCHES
from dropbench.tasks.detection.interaction_ap import Pairing
from dropbench.tasks.detection.interaction_detection import InteractionDetection, _jitter_colors, _remaining_pairs
from tests.input_errors import one_line
from tests.tasks.making import DETR, task_of, trial_of


def make(**overrides: Any) -> InteractionDetection:
    trial = trial_of("interaction-detection", "hico-det-synthetic", "qpic", {**DETR, **overrides})
    return task_of(InteractionDetection, trial)


@pytest.fixture(scope="module")
def task() -> InteractionDetection:
    return make()


def pairs_of(image: PairedImage) -> set[tuple[int, tuple[int, ...]]]:
    """Return, for each two boxes of a pair, the object's class and all verbs."""
    pairs: dict[tuple[int, int], list[int]] = {}
    for subject, thing, verb in image.pairs.tolist():
        pairs.setdefault((subject, thing), []).append(verb)
    return {(int(image.labels[thing]), tuple(sorted(verbs))) for (_, thing), verbs in pairs.items()}


def test_pairs_keep_their_boxes_through_flips_and_crops() -> None:
    """Circle and shape of a pair touch or are apart, according to the verb."""
    task = make(image_size=200)
    for number in range(15):
        seed_all(number)
        batch = task.batch("train", [number])
        image = task.splits["train"].images[number]
        labels, verbs = batch["labels"][0], batch["verbs"][0]
        pairs = {(int(label), tuple(row.nonzero()[:, 0].tolist())) for label, row in zip(labels, verbs, strict=True)}
        assert pairs <= pairs_of(image)
        height, width = batch["meta"][0]["img_shape"]
        assert batch["images"][0].shape == (3, height, width)
        for subject, thing, row in zip(batch["subjects"][0], batch["objects"][0], verbs, strict=True):
            for box in (subject, thing):
                assert 0 <= box[0] < box[2] <= width
                assert 0 <= box[1] < box[3] <= height
            gap = (torch.maximum(subject[:2], thing[:2]) - torch.minimum(subject[2:], thing[2:])).max()
            assert row.nonzero()[:, 0].tolist() == [(TOUCHES if gap < 4 else WATCHES) - 1]


def test_pairs_with_a_box_outside_of_the_crop_are_left_out() -> None:
    """mmdet's crop keeps some of the boxes with their labels: number in the image and class."""
    boxes = np.array([[0, 0, 9, 9], [10, 0, 19, 9], [20, 0, 29, 9], [30, 0, 39, 9]], float)
    pairs = np.array([[0, 1, 5], [0, 2, 6], [3, 2, 7], [3, 2, 8]])
    labels, corners = torch.tensor([[2, 7], [3, 0]]), HorizontalBoxes(torch.from_numpy(boxes[2:]))
    image = PairedImage("", boxes, np.array([0, 4, 7, 0]), pairs)
    remaining = _remaining_pairs(image, InstanceData(labels=labels, bboxes=corners))
    assert (remaining["labels"].tolist(), remaining["verbs"].nonzero().tolist()) == ([7], [[0, 7], [0, 8]])
    assert (remaining["subjects"].tolist(), remaining["objects"].tolist()) == ([[*boxes[3]]], [[*boxes[2]]])


def test_boxes_beyond_the_queries_are_left_out_of_training() -> None:
    task = make(**{"model.num_queries": 2})
    cut = sum(max(0, len(image.boxes) - 2) for image in task.splits["train"].images)
    assert f"training boxes beyond the first 2 of their image, left out: {cut}" in task.notes
    crowded = next(n for n, image in enumerate(task.splits["train"].images) if len(image.boxes) > 2)
    assert len(task.batch("train", [crowded])["labels"][0]) <= 1


def test_only_the_colors_are_jittered() -> None:
    blue = np.zeros((4, 5, 3), np.uint8)
    blue[..., 0] = 200
    seed_all(3)
    changed = _jitter_colors({"img": blue.copy(), "gt": 1})
    assert (changed["gt"], changed["img"].shape) == (1, blue.shape)
    assert changed["img"][..., 0].min() > changed["img"][..., 2].max()
    assert len(np.unique(changed["img"].reshape(-1, 3), axis=0)) == 1


def test_training_learns() -> None:
    task = make(**{"model.verb_prior": 0.5})  # the published prior
    torch.manual_seed(0)
    model = task.build_model().train()
    seed_all(0)
    batch = task.batch("train", [0, 1, 2, 3])
    assert task.num_loss_terms(batch) == 4
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(12):
        loss = task.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


def test_an_image_without_pairs_has_a_loss_and_verbs_of_the_same_boxes_are_one_pair() -> None:
    task = make()
    image, second, *others = task.splits["train"].images
    nothing = PairedImage(image.name, image.boxes[:0], image.labels[:0], image.pairs[:0])
    more = np.concatenate([second.pairs, second.pairs[:1] + np.array([0, 0, 3])])
    changed = PairedImage(second.name, second.boxes, second.labels, more)
    object.__setattr__(task.splits["train"], "images", (nothing, changed, *others))
    model = task.build_model()
    for indices in ([0], [0, 1]):
        loss = task.loss(model, task.batch("train", indices))
        loss.backward()
        assert loss.isfinite()
    batch = task.batch("train", [1])
    assert len(batch["labels"][0]) <= len(second.pairs)
    assert batch["verbs"][0][0].nonzero()[:, 0].tolist() == sorted({int(more[0, 2]), int(more[-1, 2])})


def test_predictions_are_in_the_pixels_of_the_image(
    task: InteractionDetection, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = task.build_model().eval()
    with torch.no_grad():
        (prediction,) = task.predict(model, task.batch("test", [0]))
        values = task.evaluate(model, "test", (task.batch("test", part) for part in task.evaluation_batches("test", 4)))
    assert prediction.subjects.shape == prediction.objects.shape == (6, 4)
    assert prediction.scores.shape == (6, 117)
    verbs = {f"verb-{verb + 1}" for verb in task.splits["test"].images[0].pairs[:, 2].tolist()}
    assert {name.split()[0] for name in task.sample_view("test", 0).label.split(", ")} == verbs
    assert set(values) == {"map-full", "map-non-rare", "map-full-known-object", "map-non-rare-known-object"}

    def perfect(model: Any, batch: dict[str, list[Any]]) -> list[Pairing]:
        parts = zip(batch["subjects"], batch["objects"], batch["labels"], batch["verbs"], strict=True)
        return [Pairing(*(part.numpy() for part in image)) for image in parts]

    monkeypatch.setattr(task, "predict", perfect)
    batches = [task.batch("test", part) for part in task.evaluation_batches("test", 4)]
    for part in (batches, batches[:7]):
        assert set(task.evaluate(model, "test", part).values()) == {100.0}


def test_data_with_only_test_annotations_are_refused(tmp_path: Path) -> None:
    for name in ("test_hico.json", "corre_hico.npy", "rare_split.json", "hico_list_vb.txt", "hico_list_hoi.txt"):
        (tmp_path / name).touch()
    settings = Settings.from_environment(device="cpu", folders={"hico-det": tmp_path})
    message = "have only test annotations: training expects annotations/trainval_hico.json.* hico-det-synthetic$"
    with one_line(message):
        trial_of("interaction-detection", "hico-det", "qpic", DETR, settings)
