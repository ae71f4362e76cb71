"""Average precision of interactions: perfect detections, cases by hand, and slow code that shares nothing with ours."""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.data import locate, read
from tasks.data.interactions import InteractionData, Interactions, PairedImage
from tasks.interaction_ap import Pairing, best, mean_average_precision, overlap
from tasks.outlines.detection import InteractionDetectionOutline

BOX, THING = (0, 0, 99, 99), (200, 0, 299, 99)
HALF, LESS = (0, 0, 99, 49), (0, 0, 99, 48)
"""IoU 0.5 and 0.49 with `BOX`: the last pixels belong to a box."""
NAMES = [metric.name for metric in InteractionDetectionOutline.metrics]


def known(verbs: int = 3, objects: int = 3, rare: tuple[int, ...] = (0,)) -> Interactions:
    """Every verb with every object; classes are numbered by object, then verb."""
    classes = np.array([(verb, thing) for thing in range(objects) for verb in range(verbs)])
    marked = np.isin(np.arange(len(classes)), rare)
    return Interactions(tuple("vwxyz"[:verbs]), tuple("abcde"[:objects]), classes, marked)


def image(*pairs: Any) -> PairedImage:
    """Of pairs: box of the person, box of the object, its class, verb."""
    boxes = [box for pair in pairs for box in pair[:2]]
    labels = [label for pair in pairs for label in (0, pair[2])]
    numbers = [(2 * n, 2 * n + 1, pair[3]) for n, pair in enumerate(pairs)]
    return PairedImage(
        "", np.array(boxes, float).reshape(-1, 4), np.array(labels, int), np.array(numbers, int).reshape(-1, 3)
    )


def pairing(*pairs: Any) -> Pairing:
    """Of pairs: box of the person, box of the object, its class, scores of the verbs."""
    return Pairing(
        np.array([pair[0] for pair in pairs], float).reshape(-1, 4),
        np.array([pair[1] for pair in pairs], float).reshape(-1, 4),
        np.array([pair[2] for pair in pairs], int),
        np.array([pair[3] for pair in pairs], float).reshape(-1, 3),
    )


def slow(kind: Interactions, truths: list[PairedImage], found: list[Pairing], most: int | None) -> dict[str, float]:
    """The rule once more, pair by pair in plain Python."""

    def iou(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
        wide = min(one[2], other[2]) - max(one[0], other[0])
        high = min(one[3], other[3]) - max(one[1], other[1])
        if wide <= 0 or high <= 0:
            return 0.0
        shared = (wide + 1) * (high + 1)
        sizes = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (one, other)]
        return float(shared / (sum(sizes) - shared))

    lists: dict[tuple[int, int], list[tuple[float, bool, int]]] = {}
    totals: dict[tuple[int, int], int] = {}
    for number, (truth, one) in enumerate(zip(truths, found, strict=True)):
        for _, thing, verb in truth.pairs.tolist():
            key = (verb, int(truth.labels[thing]))
            totals[key] = totals.get(key, 0) + 1
        ranked = [
            (float(one.scores[row, verb]), row, verb)
            for row in range(len(one.labels))
            for verb in range(len(kind.verbs))
            if (verb, int(one.labels[row])) in [tuple(pair) for pair in kind.classes.tolist()]
        ]
        ranked.sort(key=lambda pair: -pair[0])
        taken: set[int] = set()
        for score, row, verb in ranked[:most]:
            most_overlap, nearest = 0.0, None
            for place, (subject, thing, true_verb) in enumerate(truth.pairs.tolist()):
                if verb != true_verb or truth.labels[thing] != one.labels[row]:
                    continue
                both = [iou(one.subjects[row], truth.boxes[subject]), iou(one.objects[row], truth.boxes[thing])]
                if min(both) >= 0.5 and min(both) > most_overlap:
                    most_overlap, nearest = min(both), place
            right = nearest is not None and nearest not in taken
            if nearest is not None:
                taken.add(nearest)
            lists.setdefault((verb, int(one.labels[row])), []).append((score, right, number))
    values = {}
    for ending in ("", "-known-object"):
        groups: dict[str, list[float]] = {"full": [], "rare": [], "non-rare": []}
        for place, (verb, thing) in enumerate(kind.classes.tolist()):
            if (verb, thing) not in totals:
                continue
            entries = sorted(lists.get((verb, thing), []), key=lambda entry: -entry[0])
            if ending:
                having = [n for n, t in enumerate(truths) if thing in [t.labels[pair[1]] for pair in t.pairs.tolist()]]
                entries = [entry for entry in entries if entry[2] in having]
            points, hits = [], 0
            for rank, (_, right, _) in enumerate(entries, 1):
                hits += right
                points.append((hits / totals[verb, thing], hits / rank))
            at = [max([p for r, p in points if r >= step], default=0.0) for step in np.arange(0.0, 1.1, 0.1)]
            for group in ("full", "rare" if kind.rare[place] else "non-rare"):
                groups[group].append(sum(at) / 11)
        values.update({f"map-{name}{ending}": 100 * sum(aps) / len(aps) for name, aps in groups.items() if aps})
    return values


CASES = {
    "one that is right": ([image((BOX, THING, 1, 0))], [pairing((BOX, THING, 1, [0.9, 0, 0]))], 100),
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
    truths, found, expected = CASES[name]
    values = mean_average_precision(known(rare=()), truths, found)
    assert values["map-full"] == pytest.approx(expected, abs=1e-9)
    assert "map-rare" not in values
    assert values == pytest.approx(slow(known(rare=()), truths, found, 100), abs=1e-9)


def test_images_without_the_object_count_in_default_alone() -> None:
    truths = [image((BOX, THING, 1, 0)), image((BOX, THING, 2, 0)), image()]
    wrong = pairing((BOX, THING, 1, [0.9, 0, 0]))
    values = mean_average_precision(known(), truths, [pairing((BOX, THING, 1, [0.5, 0, 0])), wrong, wrong])
    assert values["map-full"] == pytest.approx((100 / 3 + 0) / 2)
    assert values["map-full-known-object"] == pytest.approx((100 + 0) / 2)


def test_rare_classes_are_counted_apart() -> None:
    truths = [image((BOX, THING, 0, 0)), image((BOX, THING, 1, 1))]
    values = mean_average_precision(known(), truths, [pairing((BOX, THING, 0, [0.5, 0, 0])), pairing()])
    assert [values[name] for name in NAMES] == pytest.approx([50, 100, 0] * 2)


@pytest.mark.parametrize("most", [None, 5, 20])
@pytest.mark.parametrize("seed", range(4))
def test_random_detections_have_what_slow_code_gives(seed: int, most: int | None) -> None:
    random = np.random.RandomState(seed)
    kind = known(rare=(0, 4, 5))

    def corners(base: NDArray[np.floating], spread: int) -> NDArray[np.floating]:
        """Boxes that overlap those given, more or less."""
        return base + random.randint(-spread, spread + 1, base.shape)

    truths, found = [], []
    for _ in range(12):
        count = int(random.randint(0, 5))
        base = np.array([(x, y, x + 30, y + 30) for x, y in random.randint(0, 60, (2 * count, 2))]).reshape(-1, 4)
        pairs = [(base[2 * n], base[2 * n + 1], random.randint(3), random.randint(3)) for n in range(count)]
        truths.append(image(*pairs))
        rows = [(*(corners(box, 6) for box in pair[:2]), pair[2], random.rand(3).round(3)) for pair in pairs * 3]
        found.append(pairing(*rows))
    ours, theirs = mean_average_precision(kind, truths, found, most), slow(kind, truths, found, most)
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert 0 < ours["map-full"] < 100


def test_what_does_not_exist_takes_no_place_among_the_best() -> None:
    kind = known(rare=())
    alone = Interactions(kind.verbs, kind.objects, kind.classes[:1], kind.rare[:1])
    found = pairing((BOX, THING, 0, [0.1, 0.9, 0.9]))
    assert mean_average_precision(alone, [image((BOX, THING, 0, 0))], [found], most=1)["map-full"] == 100
    assert best(np.array([0.5, 0.7, 0.5, 0.7]), 3).tolist() == [1, 3, 0]


def test_overlap_counts_the_last_pixels() -> None:
    boxes = np.array([HALF, LESS, (99, 0, 199, 99), (100, 0, 199, 99)], float)
    assert overlap(boxes, np.array([BOX], float))[:, 0].tolist() == [0.5, 0.49, 0.0, 0.0]


@pytest.fixture(scope="module")
def published() -> InteractionData:
    folder = Path(os.environ.get("DROPBENCH_DATA", "data")) / "hico_det"
    if not folder.is_dir():
        pytest.skip("no hico_det in DROPBENCH_DATA")
    return read(locate("hico-det"), InteractionData)


def perfect(truth: PairedImage, verbs: int) -> Pairing:
    """The true pairs, each found once with all its verbs."""
    boxes, places = np.unique(truth.pairs[:, :2], axis=0, return_inverse=True)
    scores = np.zeros((len(boxes), verbs))
    scores[places.reshape(-1), truth.pairs[:, 2]] = 1
    return Pairing(truth.boxes[boxes[:, 0]], truth.boxes[boxes[:, 1]], truth.labels[boxes[:, 1]], scores)


def test_random_detections_have_what_the_authors_code_gives(published: InteractionData) -> None:
    """docs/parity.md has the rule: 12 pairs an image, near true ones, most with the right object."""
    found = []
    for truth in published.test.images:
        random = np.random.RandomState(zlib.crc32(truth.name.encode()))
        pairs = truth.pairs[random.randint(0, len(truth.pairs), 12)]
        boxes = []
        for end in (0, 1):
            base = truth.boxes[pairs[:, end]]
            sides = np.tile(base[:, 2:] - base[:, :2], 2)
            boxes.append(base + 0.1 * sides * random.standard_normal((12, 4)))
        right = random.random_sample(12) < 0.8
        labels = np.where(right, truth.labels[pairs[:, 1]], random.randint(0, 80, 12))
        scores = random.random_sample((12, 117)) ** 4
        scores[np.arange(12), pairs[:, 2]] = random.random_sample(12)
        found.append(Pairing(boxes[0], boxes[1], labels, scores))
    values = mean_average_precision(published.interactions, published.test.images, found)
    golden = json.loads((Path(__file__).parents[1] / "golden" / "qpic.json").read_text())["test_hico"]
    assert {name: values[name] for name in golden} == pytest.approx(golden, abs=1e-9)


def test_perfect_detections_of_the_published_test_split(published: InteractionData) -> None:
    kind, images = published.interactions, published.test.images
    found = [perfect(truth, len(kind.verbs)) for truth in images]
    start = time.process_time()
    values = mean_average_precision(kind, images, found, most=None)
    assert time.process_time() - start < 60
    assert values == dict.fromkeys(NAMES, 100.0)
    # With the cut, classes of the three images with more than 100 pairs lose, and no others.
    crowded = [number for number, truth in enumerate(images) if len(truth.pairs) > 100]
    assert [len(crowded), max(len(truth.pairs) for truth in images)] == [3, 161]
    losing = set()
    for number in crowded:
        losing |= set(kind.numbers[images[number].pairs[:, 2], images[number].labels[images[number].pairs[:, 1]]])
    rest = np.array([place not in losing for place in range(len(kind.classes))])
    kept = Interactions(kind.verbs, kind.objects, kind.classes[rest], kind.rare[rest])
    least = mean_average_precision(kind, [images[n] for n in crowded], [found[n] for n in crowded])
    assert least["map-full"] < 100
    pairs = [truth.pairs[kept.correct[truth.pairs[:, 2], truth.labels[truth.pairs[:, 1]]]] for truth in images]
    others = [PairedImage(t.name, t.boxes, t.labels, remaining) for t, remaining in zip(images, pairs, strict=True)]
    assert mean_average_precision(kept, others, found)["map-full"] == 100
