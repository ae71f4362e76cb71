"""HICO-DET's mean average precision of interactions (Chao et al. 2018), in its Default and Known Object settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dropbench.tasks.data.detection.interactions import Interactions, PairedImage
from dropbench.tasks.detection.spec import AP_SETTINGS

MAX_DETS = 100
"""Maximum number of detected pairs per image."""
MIN_IOU = 0.5
"""Minimum IoU of a detected box with the true one."""
RECALLS = np.arange(0.0, 1.1, 0.1)
"""Recalls at which precision is measured: the 11 points of Pascal VOC 2007."""

Boxes = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Pairing:
    """Detected pairs of an image.

    Attributes:
        subjects: (N, 4): boxes of persons: left, top, right, bottom in pixels.
        objects: (N, 4): boxes of objects.
        labels: (N,): class of each object, from 0.
        scores: (N, V): score of each verb, times that of the object.
    """

    subjects: Boxes
    objects: Boxes
    labels: NDArray[np.int64]
    scores: NDArray[np.floating]


def mean_average_precision(
    interactions: Interactions,
    truths: Sequence[PairedImage],
    predictions: Sequence[Pairing],
    max_dets: int | None = MAX_DETS,
) -> dict[str, float]:
    """Return the metrics of `InteractionDetectionSpec` that the data define, in percent.

    A detected pair is correct if both its boxes have an IoU of at least `MIN_IOU` with those of a true pair with the
    same object and verb. If several true pairs qualify, it is matched to the one with the largest IoU, taking the
    smaller IoU of both boxes; it is wrong if a detection with a higher score is matched to that pair. The average
    precision of a class is the mean over `RECALLS` of the largest precision at that recall or a higher one.

    Default counts the detections in all images. Known Object counts, for each class, those in images with a true pair
    with its object (a person who is only a subject is not an object). Classes without a true pair are left out of the
    means.

    Args:
        interactions: the interaction classes.
        truths: the true pairs of each image.
        predictions: the detected pairs of each image; interactions that do not exist are ignored.
        max_dets: maximum number of detections per image, by score; None: all.
    """
    classes, scores, correct, images = _rank(interactions, truths, predictions, max_dets)
    num_true = interactions.count(tuple(truths))
    has_object = np.zeros((len(truths), len(interactions.objects)), np.bool_)
    for number, truth in enumerate(truths):
        has_object[number, truth.labels[truth.pairs[:, 1]]] = True
    known_object = has_object[images, interactions.classes[classes, 1]]
    present = num_true > 0
    groups = {"full": present, "rare": present & interactions.rare, "non-rare": present & ~interactions.rare}
    values = {}
    for suffix, counted in zip(AP_SETTINGS, (np.ones_like(known_object), known_object), strict=True):
        precisions = _average_precisions(classes[counted], scores[counted], correct[counted], num_true)
        for name, members in groups.items():
            if members.any():
                values[f"map-{name}{suffix}"] = 100 * float(precisions[members].mean())
    return values


def _rank(
    interactions: Interactions, truths: Sequence[PairedImage], predictions: Sequence[Pairing], max_dets: int | None
) -> tuple[NDArray[Any], ...]:
    """Return the best detected pairs of all images: interaction class, score, correctness and image number of each."""
    parts: list[tuple[NDArray[Any], ...]] = []
    for number, (truth, prediction) in enumerate(zip(truths, predictions, strict=True)):
        rows, verbs, classes, scores = best_detections(interactions, prediction, max_dets)
        parts.append((classes, scores, _match(truth, prediction, rows, verbs), np.full(len(rows), number)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


class Detections(NamedTuple):
    """Detections (D,) in descending order of score: row of the pair, verb, interaction class, and score."""

    rows: NDArray[np.int64]
    verbs: NDArray[np.int64]
    classes: NDArray[np.int64]
    scores: NDArray[np.floating]


def best_detections(interactions: Interactions, prediction: Pairing, max_dets: int | None) -> Detections:
    """Return the detections of an image with the highest scores; interactions that do not exist are left out."""
    rows, verbs = np.nonzero(interactions.numbers[:, prediction.labels].T >= 0)
    scores = prediction.scores[rows, verbs]
    order = top_k(scores, max_dets)
    rows, verbs = rows[order], verbs[order]
    return Detections(rows, verbs, interactions.numbers[verbs, prediction.labels[rows]], scores[order])


def top_k(scores: NDArray[np.floating], k: int | None) -> NDArray[np.int64]:
    """Return the indices of the k highest scores (None: all) in descending order; ties keep their order."""
    candidates = np.arange(len(scores))
    if k is not None and len(scores) > k:
        candidates = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def _match(
    truth: PairedImage, prediction: Pairing, rows: NDArray[np.int64], verbs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return for each detection, in order of score, whether it is the first one matched to a true pair."""
    correct = np.zeros(len(rows), np.bool_)
    subjects, objects, true_verbs = truth.pairs.T
    if not len(rows) or not len(subjects):
        return correct
    iou = np.minimum(
        pairwise_iou(prediction.subjects, truth.boxes[subjects]),
        pairwise_iou(prediction.objects, truth.boxes[objects]) * (prediction.labels[:, None] == truth.labels[objects]),
    )
    iou = iou[rows] * (verbs[:, None] == true_verbs)
    matched = iou.argmax(axis=1)
    hits = np.flatnonzero(iou[np.arange(len(rows)), matched] >= MIN_IOU)
    correct[hits[np.unique(matched[hits], return_index=True)[1]]] = True
    return correct


def pairwise_iou(first: Boxes, second: Boxes) -> NDArray[np.float64]:
    """Return the IoU (N, M) of boxes (N, 4) and boxes (M, 4), which include their last pixels."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    sides = np.minimum(first[:, None, 2:], second[None, :, 2:]) - np.maximum(first[:, None, :2], second[None, :, :2])
    intersection = np.where((sides > 0).all(axis=2), (sides + 1).prod(axis=2), 0.0)
    areas = [(boxes[:, 2:] - boxes[:, :2] + 1).prod(axis=1) for boxes in (first, second)]
    return np.asarray(intersection / (areas[0][:, None] + areas[1][None] - intersection))


def _average_precisions(
    classes: NDArray[np.int64], scores: NDArray[np.floating], correct: NDArray[np.bool_], num_true: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the average precision (K,) of each class over its detections; 0 for a class without any."""
    order = np.lexsort((-scores, classes))
    bounds = np.searchsorted(classes[order], np.arange(len(num_true) + 1))
    values = np.zeros(len(num_true))
    for number in np.flatnonzero(num_true):
        hits = np.cumsum(correct[order[bounds[number] : bounds[number + 1]]])
        precision = hits / np.arange(1, len(hits) + 1)
        envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
        values[number] = envelope[np.searchsorted(hits / num_true[number], RECALLS)].mean()
    return values
