"""Test the average precision of interactions: cases by hand, perfect detections, the authors' code."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropbench.tasks.data import locate, read
from dropbench.tasks.data.detection.interactions import InteractionData, Interactions, PairedImage
from dropbench.tasks.detection.interaction_ap import Pairing, mean_average_precision, top_k
from dropbench.tasks.detection.spec import InteractionDetectionSpec
from tests.paths import GOLDEN_FILES

BOX, THING = (0, 0, 99, 99), (200, 0, 299, 99)
HALF, LESS = (0, 0, 99, 49), (0, 0, 99, 48)
"""IoU 0.5 and 0.49 with `BOX`: the last pixels belong to a box."""
NAMES = [metric.name for metric in InteractionDetectionSpec.metrics]


def all_interactions(verbs: int = 3, objects: int = 3, rare: tuple[int, ...] = (0,)) -> Interactions:
    """Return every verb with every object; classes are numbered by object, then verb."""
    classes = np.array([(verb, thing) for thing in range(objects) for verb in range(verbs)])
    marked = np.isin(np.arange(len(classes)), rare)
    return Interactions(tuple("vwxyz"[:verbs]), tuple("abcde"[:objects]), classes, marked)


def image(*pairs: Any) -> PairedImage:
    """Return an image with true pairs, given as box of the person, box of the object, its class, verb."""
    boxes = [box for pair in pairs for box in pair[:2]]
    labels = [label for pair in pairs for label in (0, pair[2])]
    numbers = [(2 * n, 2 * n + 1, pair[3]) for n, pair in enumerate(pairs)]
    return PairedImage(
        "", np.array(boxes, float).reshape(-1, 4), np.array(labels, int), np.array(numbers, int).reshape(-1, 3)
    )


def pairing(*pairs: Any) -> Pairing:
    """Return detected pairs, given as box of the person, box of the object, its class, scores of the verbs."""
    return Pairing(
        np.array([pair[0] for pair in pairs], float).reshape(-1, 4),
        np.array([pair[1] for pair in pairs], float).reshape(-1, 4),
        np.array([pair[2] for pair in pairs], int),
        np.array([pair[3] for pair in pairs], float).reshape(-1, 3),
    )


CASES = {
    "half of the person's box": ([image((BOX, THING, 1, 0))], [pairing((HALF, THING, 1, [0.9, 0, 0]))], 100),
    "less than half": ([image((BOX, THING, 1, 0))], [pairing((LESS, THING, 1, [0.9, 0, 0]))], 0),
    "another object": ([image((BOX, THING, 1, 0))], [pairing((BOX, THING, 2, [0.9, 0, 0]))], 0),
    "another verb": ([image((BOX, THING, 1, 0))], [pairing((BOX, THING, 1, [0, 0.9, 0]))], 100),
    "a verb with a higher score elsewhere": (
        [image((BOX, THING, 1, 0))],
        [pairing((THING, BOX, 1, [0.9, 0, 0]), (BOX, THING, 1, [0.5, 0, 0]))],
        50,
    ),
    "a duplicate with a lower score": (
        [image((BOX, THING, 1, 0))],
        [pairing((BOX, THING, 1, [0.9, 0, 0]), (HALF, THING, 1, [0.8, 0, 0]))],
        100,
    ),
    "a duplicate before the second": (
        [image((BOX, THING, 1, 0), (THING, BOX, 1, 0))],
        [pairing((BOX, THING, 1, [0.9, 0, 0]), (HALF, THING, 1, [0.8, 0, 0]), (THING, BOX, 1, [0.7, 0, 0]))],
        100 * (6 + 5 * 2 / 3) / 11,
    ),
    "no pair at all": ([image((BOX, THING, 1, 0)), image()], [pairing(), pairing()], 0),
}


@pytest.mark.parametrize("name", list(CASES))
def test_cases_by_hand(name: str) -> None:
    truths, predictions, expected = CASES[name]
    values = mean_average_precision(all_interactions(rare=()), truths, predictions)
    assert values["map-full"] == pytest.approx(expected, abs=1e-9)
    assert "map-rare" not in values


def test_images_without_the_object_count_only_in_the_default_setting() -> None:
    truths = [image((BOX, THING, 1, 0)), image((BOX, THING, 2, 0)), image()]
    wrong = pairing((BOX, THING, 1, [0.9, 0, 0]))
    values = mean_average_precision(all_interactions(), truths, [pairing((BOX, THING, 1, [0.5, 0, 0])), wrong, wrong])
    assert values["map-full"] == pytest.approx((100 / 3 + 0) / 2)
    assert values["map-full-known-object"] == pytest.approx((100 + 0) / 2)


def test_rare_classes_are_averaged_separately() -> None:
    truths = [image((BOX, THING, 0, 0)), image((BOX, THING, 1, 1))]
    values = mean_average_precision(all_interactions(), truths, [pairing((BOX, THING, 0, [0.5, 0, 0])), pairing()])
    assert [values[name] for name in NAMES] == pytest.approx([50, 100, 0] * 2)


def test_interactions_that_do_not_exist_do_not_count_among_the_best_detections() -> None:
    kind = all_interactions(rare=())
    alone = Interactions(kind.verbs, kind.objects, kind.classes[:1], kind.rare[:1])
    detected = pairing((BOX, THING, 0, [0.1, 0.9, 0.9]))
    assert mean_average_precision(alone, [image((BOX, THING, 0, 0))], [detected], max_dets=1)["map-full"] == 100
    assert top_k(np.array([0.5, 0.7, 0.5, 0.7]), 3).tolist() == [1, 3, 0]


@pytest.fixture(scope="module")
def published() -> InteractionData:
    folder = Path(os.environ.get("DROPBENCH_DATA", "data")) / "hico_det"
    if not folder.is_dir():
        pytest.skip("no hico_det in DROPBENCH_DATA")
    return read(locate("hico-det"), InteractionData)


@pytest.mark.slow
def test_random_detections_score_as_in_the_authors_code(published: InteractionData) -> None:
    """Each image has 12 detections near true pairs, most with the right object (docs/parity.md has the rule)."""
    predictions = []
    for truth in published.test.images:
        random = np.random.RandomState(zlib.crc32(truth.name.encode()))
        pairs = truth.pairs[random.randint(0, len(truth.pairs), 12)]
        boxes = []
        for end in (0, 1):
            base = truth.boxes[pairs[:, end]]
            sides = np.tile(base[:, 2:] - base[:, :2], 2)
            boxes.append(base + 0.1 * sides * random.standard_normal((12, 4)))
        correct = random.random_sample(12) < 0.8
        labels = np.where(correct, truth.labels[pairs[:, 1]], random.randint(0, 80, 12))
        scores = random.random_sample((12, 117)) ** 4
        scores[np.arange(12), pairs[:, 2]] = random.random_sample(12)
        predictions.append(Pairing(boxes[0], boxes[1], labels, scores))
    values = mean_average_precision(published.interactions, published.test.images, predictions)
    golden = json.loads((GOLDEN_FILES / "qpic.json").read_text())["test_hico"]
    assert {name: values[name] for name in golden} == pytest.approx(golden, abs=1e-9)
