"""Merge the curves of several seeds into a mean and a band from the lowest to the highest, with few points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Curve = Sequence[tuple[int, float | None]]
"""(step, value) in order of steps; the value is None if the run reported no finite number."""


@dataclass(frozen=True)
class SeedBand:
    """Curves of several seeds merged into one of K points.

    Attributes:
        steps, mean, low, high: (K,). Points outside the range of a seed are computed from the other seeds.
        seeds: number of merged curves.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    seeds: int


def merge_seeds(curves: Sequence[Curve], max_points: int) -> SeedBand | None:
    """Merge curves; return None if none of them has a point.

    Args:
        curves: one per seed; values between their steps are interpolated.
        max_points: maximum number of points of the band, at least 2.
    """
    finite = [_finite(curve) for curve in curves]
    finite = [(steps, values) for steps, values in finite if len(steps)]
    if not finite:
        return None
    steps = _subsample(np.unique(np.concatenate([steps for steps, _ in finite])), max_points)
    values = np.array([np.interp(steps, *curve, left=np.nan, right=np.nan) for curve in finite])
    # No seed covers the steps between the end of one and the start of another that was resumed from a later step.
    covered = np.isfinite(values).any(axis=0)
    steps, values = steps[covered], values[:, covered]
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    return SeedBand(steps, np.nanmean(values, axis=0), low, high, len(finite))


def _finite(curve: Curve) -> tuple[Array, Array]:
    points = [(step, value) for step, value in curve if value is not None]
    return np.array([step for step, _ in points], dtype=float), np.array([value for _, value in points], dtype=float)


def _subsample(steps: Array, max_points: int) -> Array:
    """Return at most `max_points` of the steps, including the first and the last."""
    if len(steps) <= max_points:
        return steps
    subset: Array = steps[np.unique(np.linspace(0, len(steps) - 1, max_points).round().astype(int))]
    return subset
