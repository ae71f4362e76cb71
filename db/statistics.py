"""How sure a difference is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from db.aggregates import summarize

ENOUGH = 3
"""Pairs below which there is neither an interval nor a p-value: of two it says nothing."""


@dataclass(frozen=True)
class Paired:
    """Differences pair by pair: their mean, its 95 % confidence interval, the two-sided p-value, how many.

    Attributes:
        mean: of the differences; None without any.
        low, high, p: Student's t; None for fewer than `ENOUGH` pairs.
        n: pairs.
    """

    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int


def paired(differences: Sequence[float]) -> Paired:
    """The mean of differences seed by seed, and Student's paired t test of it against 0 (Student 1908)."""
    found = summarize(differences)
    if found.mean is None or found.std is None or found.n < ENOUGH:
        return Paired(found.mean, None, None, None, found.n)
    from scipy.special import stdtr, stdtrit

    error = found.std / math.sqrt(found.n)
    if error == 0:
        return Paired(found.mean, found.mean, found.mean, float(found.mean == 0), found.n)
    away = error * float(stdtrit(found.n - 1, 0.975))
    p = 2 * float(stdtr(found.n - 1, -abs(found.mean) / error))
    return Paired(found.mean, found.mean - away, found.mean + away, p, found.n)
