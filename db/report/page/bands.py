"""Curves made small: few points each, seeds merged to their mean and the band from the lowest to the highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Curve = Sequence[tuple[int, float | None]]
"""(step, value) in order of steps; None where the run reported no finite number."""


@dataclass(frozen=True)
class Band:
    """Curves of several seeds as one, of K points.

    Attributes:
        steps, mean, low, high: (K,). Where a seed has ended, or has not come yet, the others stand for all.
        seeds: how many curves it is made of.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    seeds: int


def band(curves: Sequence[Curve], most: int) -> Band | None:
    """Merge curves; None where none has a point.

    Args:
        curves: one a seed.
        most: points that the band may have, at least 2; between the steps of a seed its value is interpolated.
    """
    kept = [_finite(curve) for curve in curves]
    kept = [(steps, values) for steps, values in kept if len(steps)]
    if not kept:
        return None
    steps = _spread(np.unique(np.concatenate([steps for steps, _ in kept])), most)
    every = np.array([np.interp(steps, *one, left=np.nan, right=np.nan) for one in kept])
    # Between the end of one seed and the beginning of another (tried again from a later step) there may be none at all.
    there = np.isfinite(every).any(axis=0)
    steps, every = steps[there], every[:, there]
    return Band(steps, np.nanmean(every, axis=0), np.nanmin(every, axis=0), np.nanmax(every, axis=0), len(kept))


def _finite(curve: Curve) -> tuple[Array, Array]:
    real = [(step, value) for step, value in curve if value is not None]
    return np.array([step for step, _ in real], dtype=float), np.array([value for _, value in real], dtype=float)


def _spread(steps: Array, most: int) -> Array:
    """At most so many of the steps, the first and the last among them."""
    if len(steps) <= most:
        return steps
    kept: Array = steps[np.unique(np.linspace(0, len(steps) - 1, most).round().astype(int))]
    return kept
