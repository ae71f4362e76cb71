"""Mean average precision of interactions as HICO-DET measures it (Chao et al. 2018), Default and Known Object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.data.interactions import Interactions, PairedImage
from tasks.outlines.detection import AP_SETTINGS

MOST = 100
"""Pairs of an image that count."""
OVERLAP = 0.5
"""IoU that a box must have with the true one, at least."""
RECALLS = np.arange(0.0, 1.1, 0.1)
"""Where precision is looked at: 11 places, as in Pascal VOC's first years."""

Boxes = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Pairing:
    """What was found in an image.

    Attributes:
        subjects: (N, 4): boxes of persons: left, top, right, bottom in pixels.
        objects: (N, 4): boxes of objects.
        labels: (N,): class of each object, from 0.
        scores: (N, V): of each verb, times that of the object.
    """

    subjects: Boxes
    objects: Boxes
    labels: NDArray[np.int64]
    scores: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class _Ranked:
    """Counted pairs of all images: class, score, whether it is right, and number of the image of each."""

    classes: NDArray[np.int64]
    scores: NDArray[np.floating]
    right: NDArray[np.bool_]
    images: NDArray[np.int64]


def mean_average_precision(
    known: Interactions, truths: Sequence[PairedImage], found: Sequence[Pairing], most: int | None = MOST
) -> dict[str, float]:
    """The metrics of `InteractionDetectionOutline` that there are, in percent.

    A pair is right if both its boxes overlap those of a true pair with the same object and verb, each by `OVERLAP`.
    Where there are more such pairs, it stands for the one that it overlaps most, by the smaller of both overlaps, and
    is wrong if a pair with a higher score stood for that one. Of a class, average precision is the mean over `RECALLS`
    of the largest precision at that recall or a higher one.

    Default counts the pairs of all images; Known Object, for each class, those of images where a true pair has its
    object (a person who is the subject alone is no object). Classes without a true pair are left out of the means.

    Args:
        known: the classes.
        truths: one for each image.
        found: of the same images; interactions that do not exist are passed over.
        most: how many pairs of each image count, those with the highest scores; None for all.
    """
    ranked = _rank(known, truths, found, most)
    true = known.count(tuple(truths))
    has_object = np.zeros((len(truths), len(known.objects)), np.bool_)
    for place, truth in enumerate(truths):
        has_object[place, truth.labels[truth.pairs[:, 1]]] = True
    of_known_object = has_object[ranked.images, known.classes[ranked.classes, 1]]
    there = true > 0
    groups = {"full": there, "rare": there & known.rare, "non-rare": there & ~known.rare}
    values = {}
    for ending, counted in zip(AP_SETTINGS, (np.ones_like(of_known_object), of_known_object), strict=True):
        precisions = _average_precisions(ranked, counted, true)
        for name, members in groups.items():
            if members.any():
                values[f"map-{name}{ending}"] = 100 * float(precisions[members].mean())
    return values


def _rank(known: Interactions, truths: Sequence[PairedImage], found: Sequence[Pairing], most: int | None) -> _Ranked:
    parts: list[tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.bool_], NDArray[np.int64]]] = []
    for place, (truth, one) in enumerate(zip(truths, found, strict=True)):
        rows, verbs = np.nonzero(known.correct[:, one.labels].T)
        scores = one.scores[rows, verbs]
        order = best(scores, most)
        rows, verbs, scores = rows[order], verbs[order], scores[order]
        classes = known.numbers[verbs, one.labels[rows]]
        right = _right(truth, one, rows, verbs)
        parts.append((classes, scores, right, np.full(len(rows), place)))
    if not parts:
        return _Ranked(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_), np.zeros(0, np.int64))
    return _Ranked(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def best(scores: NDArray[np.floating], most: int | None) -> NDArray[np.int64]:
    """Places of the highest scores, highest first; of equal ones the earlier first."""
    kept = np.arange(len(scores))
    if most is not None and len(scores) > most:
        kept = np.flatnonzero(scores >= np.partition(scores, -most)[-most])
    return kept[np.argsort(-scores[kept], kind="stable")[:most]]


def _right(truth: PairedImage, one: Pairing, rows: NDArray[np.int64], verbs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each pair, the highest score first, is the first that stands for a true one."""
    right = np.zeros(len(rows), np.bool_)
    subjects, objects, true_verbs = truth.pairs.T
    if not len(rows) or not len(subjects):
        return right
    overlaps = np.minimum(
        overlap(one.subjects, truth.boxes[subjects]),
        overlap(one.objects, truth.boxes[objects]) * (one.labels[:, None] == truth.labels[objects]),
    )
    fitting = overlaps[rows] * (verbs[:, None] == true_verbs)
    nearest = fitting.argmax(axis=1)
    hits = np.flatnonzero(fitting[np.arange(len(rows)), nearest] >= OVERLAP)
    right[hits[np.unique(nearest[hits], return_index=True)[1]]] = True
    return right


def overlap(ones: Boxes, others: Boxes) -> NDArray[np.float64]:
    """IoU of boxes (N, 4) with boxes (M, 4), whose last pixels belong to them: (N, M)."""
    ones, others = np.asarray(ones, np.float64), np.asarray(others, np.float64)
    sides = np.minimum(ones[:, None, 2:], others[None, :, 2:]) - np.maximum(ones[:, None, :2], others[None, :, :2])
    shared = np.where((sides > 0).all(axis=2), (sides + 1).prod(axis=2), 0.0)
    areas = [(boxes[:, 2:] - boxes[:, :2] + 1).prod(axis=1) for boxes in (ones, others)]
    return np.asarray(shared / (areas[0][:, None] + areas[1][None] - shared))


def _average_precisions(ranked: _Ranked, counted: NDArray[np.bool_], true: NDArray[np.int64]) -> NDArray[np.float64]:
    """(K,): of each class, over the pairs that count; 0 where nothing is found."""
    places = np.flatnonzero(counted)
    order = places[np.lexsort((-ranked.scores[places], ranked.classes[places]))]
    bounds = np.searchsorted(ranked.classes[order], np.arange(len(true) + 1))
    values = np.zeros(len(true))
    for number in np.flatnonzero(true):
        right = np.cumsum(ranked.right[order[bounds[number] : bounds[number + 1]]])
        if not len(right):
            continue
        precision = right / np.arange(1, len(right) + 1)
        from_here_on = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
        values[number] = from_here_on[np.searchsorted(right / true[number], RECALLS)].mean()
    return values
