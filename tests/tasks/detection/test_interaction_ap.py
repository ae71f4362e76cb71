"""Test the average precision of interactions: perfect detections, cases by hand, an independent implementation."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.data import locate, read
from tasks.data.detection.interactions import InteractionData, Interactions, PairedImage
from tasks.detection.interaction_ap import Pairing, mean_average_precision, pairwise_iou, top_k
from tasks.detection.spec import InteractionDetectionSpec
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


def reference_map(
    kind: Interactions, truths: list[PairedImage], predictions: list[Pairing], max_dets: int | None
) -> dict[str, float]:
    """Compute the metrics pair by pair in plain Python."""

    def iou(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
        width = min(first[2], second[2]) - max(first[0], second[0])
        height = min(first[3], second[3]) - max(first[1], second[1])
        if width <= 0 or height <= 0:
            return 0.0
        intersection = (width + 1) * (height + 1)
        areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (first, second)]
        return float(intersection / (sum(areas) - intersection))

    lists: dict[tuple[int, int], list[tuple[float, bool, int]]] = {}
    totals: dict[tuple[int, int], int] = {}
    for number, (truth, prediction) in enumerate(zip(truths, predictions, strict=True)):
        for _, thing, verb in truth.pairs.tolist():
            key = (verb, int(truth.labels[thing]))
            totals[key] = totals.get(key, 0) + 1
        ranked = [
            (float(prediction.scores[row, verb]), row, verb)
            for row in range(len(prediction.labels))
            for verb in range(len(kind.verbs))
            if (verb, int(prediction.labels[row])) in [tuple(pair) for pair in kind.classes.tolist()]
        ]
        ranked.sort(key=lambda pair: -pair[0])
        matched: set[int] = set()
        for score, row, verb in ranked[:max_dets]:
            best_iou, match = 0.0, None
            for index, (subject, thing, true_verb) in enumerate(truth.pairs.tolist()):
                if verb != true_verb or truth.labels[thing] != prediction.labels[row]:
                    continue
                overlap = min(
                    iou(prediction.subjects[row], truth.boxes[subject]),
                    iou(prediction.objects[row], truth.boxes[thing]),
                )
                if overlap >= 0.5 and overlap > best_iou:
                    best_iou, match = overlap, index
            correct = match is not None and match not in matched
            if match is not None:
                matched.add(match)
            lists.setdefault((verb, int(prediction.labels[row])), []).append((score, correct, number))
    values = {}
    for ending in ("", "-known-object"):
        groups: dict[str, list[float]] = {"full": [], "rare": [], "non-rare": []}
        for number, (verb, thing) in enumerate(kind.classes.tolist()):
            if (verb, thing) not in totals:
                continue
            entries = sorted(lists.get((verb, thing), []), key=lambda entry: -entry[0])
            if ending:
                having = [n for n, t in enumerate(truths) if thing in [t.labels[pair[1]] for pair in t.pairs.tolist()]]
                entries = [entry for entry in entries if entry[2] in having]
            points, hits = [], 0
            for rank, (_, correct, _) in enumerate(entries, 1):
                hits += correct
                points.append((hits / totals[verb, thing], hits / rank))
            precisions = [max([p for r, p in points if r >= step], default=0.0) for step in np.arange(0.0, 1.1, 0.1)]
            for group in ("full", "rare" if kind.rare[number] else "non-rare"):
                groups[group].append(sum(precisions) / 11)
        values.update({f"map-{name}{ending}": 100 * sum(aps) / len(aps) for name, aps in groups.items() if aps})
    return values


CASES = {
    "a correct pair": ([image((BOX, THING, 1, 0))], [pairing((BOX, THING, 1, [0.9, 0, 0]))], 100),
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
    assert values == pytest.approx(reference_map(all_interactions(rare=()), truths, predictions, 100), abs=1e-9)


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


@pytest.mark.parametrize("max_dets", [None, 5, 20])
@pytest.mark.parametrize("seed", range(4))
def test_random_detections_score_as_in_an_independent_implementation(seed: int, max_dets: int | None) -> None:
    random = np.random.RandomState(seed)
    kind = all_interactions(rare=(0, 4, 5))

    def corners(base: NDArray[np.floating], spread: int) -> NDArray[np.floating]:
        """Shift boxes at random, so that they overlap the original ones to varying degrees."""
        return base + random.randint(-spread, spread + 1, base.shape)

    truths, predictions = [], []
    for _ in range(12):
        count = int(random.randint(0, 5))
        base = np.array([(x, y, x + 30, y + 30) for x, y in random.randint(0, 60, (2 * count, 2))]).reshape(-1, 4)
        pairs = [(base[2 * n], base[2 * n + 1], random.randint(3), random.randint(3)) for n in range(count)]
        truths.append(image(*pairs))
        rows = [(*(corners(box, 6) for box in pair[:2]), pair[2], random.rand(3).round(3)) for pair in pairs * 3]
        predictions.append(pairing(*rows))
    ours, theirs = (
        mean_average_precision(kind, truths, predictions, max_dets),
        reference_map(kind, truths, predictions, max_dets),
    )
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert 0 < ours["map-full"] < 100


def test_interactions_that_do_not_exist_do_not_count_among_the_best_detections() -> None:
    kind = all_interactions(rare=())
    alone = Interactions(kind.verbs, kind.objects, kind.classes[:1], kind.rare[:1])
    detected = pairing((BOX, THING, 0, [0.1, 0.9, 0.9]))
    assert mean_average_precision(alone, [image((BOX, THING, 0, 0))], [detected], max_dets=1)["map-full"] == 100
    assert top_k(np.array([0.5, 0.7, 0.5, 0.7]), 3).tolist() == [1, 3, 0]


def test_iou_includes_the_last_pixels() -> None:
    boxes = np.array([HALF, LESS, (99, 0, 199, 99), (100, 0, 199, 99)], float)
    assert pairwise_iou(boxes, np.array([BOX], float))[:, 0].tolist() == [0.5, 0.49, 0.0, 0.0]


@pytest.fixture(scope="module")
def published() -> InteractionData:
    folder = Path(os.environ.get("DROPBENCH_DATA", "data")) / "hico_det"
    if not folder.is_dir():
        pytest.skip("no hico_det in DROPBENCH_DATA")
    return read(locate("hico-det"), InteractionData)


def perfect(truth: PairedImage, verbs: int) -> Pairing:
    """Return the true pairs as detections, each with all its verbs."""
    boxes, rows = np.unique(truth.pairs[:, :2], axis=0, return_inverse=True)
    scores = np.zeros((len(boxes), verbs))
    scores[rows.reshape(-1), truth.pairs[:, 2]] = 1
    return Pairing(truth.boxes[boxes[:, 0]], truth.boxes[boxes[:, 1]], truth.labels[boxes[:, 1]], scores)


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


def test_perfect_detections_of_the_published_test_split(published: InteractionData) -> None:
    kind, images = published.interactions, published.test.images
    predictions = [perfect(truth, len(kind.verbs)) for truth in images]
    values = mean_average_precision(kind, images, predictions, max_dets=None)
    assert values == dict.fromkeys(NAMES, 100.0)
    # With at most 100 detections, only classes of the three images with more than 100 pairs lose precision.
    crowded = [number for number, truth in enumerate(images) if len(truth.pairs) > 100]
    assert [len(crowded), max(len(truth.pairs) for truth in images)] == [3, 161]
    losing = set()
    for number in crowded:
        losing |= set(kind.numbers[images[number].pairs[:, 2], images[number].labels[images[number].pairs[:, 1]]])
    rest = np.array([number not in losing for number in range(len(kind.classes))])
    kept = Interactions(kind.verbs, kind.objects, kind.classes[rest], kind.rare[rest])
    truncated = mean_average_precision(kind, [images[n] for n in crowded], [predictions[n] for n in crowded])
    assert truncated["map-full"] < 100
    pairs = [truth.pairs[kept.numbers[truth.pairs[:, 2], truth.labels[truth.pairs[:, 1]]] >= 0] for truth in images]
    remaining_images = [
        PairedImage(t.name, t.boxes, t.labels, remaining) for t, remaining in zip(images, pairs, strict=True)
    ]
    assert mean_average_precision(kept, remaining_images, predictions)["map-full"] == 100
