"""How sure a difference is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

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
    error = found.std / math.sqrt(found.n)
    if error == 0:
        return Paired(found.mean, found.mean, found.mean, float(found.mean == 0), found.n)
    away = error * quantile(0.05, found.n - 1)
    p = tails(abs(found.mean) / error, found.n - 1)
    return Paired(found.mean, found.mean - away, found.mean + away, p, found.n)


# Student's t without scipy, whose import alone would be a quarter of the time that `dropbench report` takes.


def tails(t: float, freedom: int) -> float:
    """How probable it is that Student's t of `freedom` degrees of freedom is `t` ≥ 0 or more away from 0.

    With ν for them, that is the regularized incomplete beta function I_x(ν/2, 1/2) at x = ν/(ν + t²) (Abramowitz and
    Stegun 1964, 26.7.1 with 26.5.27), or 1 - I_1-x(1/2, ν/2), whichever has the fraction that converges quickly.
    """
    x, y = freedom / (freedom + t * t), t * t / (freedom + t * t)
    a, b = freedom / 2, 0.5
    if x < (a + 1) / (a + b + 2):
        return _incomplete_beta(a, b, x, y)
    return 1 - _incomplete_beta(b, a, y, x)


@lru_cache
def quantile(alpha: float, freedom: int) -> float:
    """How far from 0 Student's t of `freedom` degrees of freedom is with probability `alpha`: `tails`, inverted."""
    low, high = 0.0, 1.0
    while tails(high, freedom) > alpha:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if tails(middle, freedom) > alpha else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """I_x(a, b) for y = 1 - x, by its continued fraction (ibid., 26.5.8) from the front as Lentz (1976) does."""
    if x == 0:
        return 0.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    above, below, fraction = math.inf, 1.0, 1.0
    for step in range(1, 10_000):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        below = 1 / (1 + term * below)
        above = 1 + term / above
        fraction *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return math.exp(scale) * fraction / a
