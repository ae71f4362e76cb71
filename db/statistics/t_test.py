"""Student's paired t-test, without scipy, whose import alone would take a quarter of the time of `dropbench report`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from dropbench.db.statistics.corrections import SIGNIFICANCE
from dropbench.db.statistics.seeds import ROUNDING, summarize

MIN_PAIRS = 3
"""Pairs below which there is neither an interval nor a p-value; two would make either meaningless."""
TOO_FEW, EQUAL = f"fewer than {MIN_PAIRS} pairs", "equal differences"
"""Why there is no interval. Metrics on a few hundred items take so few values that differences coincide by chance."""


@dataclass(frozen=True)
class PairedTest:
    """A paired t-test of differences.

    Attributes:
        mean: the mean difference; None without pairs.
        low, high: its 95 % confidence interval; None for fewer than `MIN_PAIRS` pairs, or equal differences.
        p: the two-sided p-value; None for the same reasons.
        n: number of pairs.
        no_interval: why there is no interval, `TOO_FEW` or `EQUAL`; None if there is one.
    """

    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    no_interval: str | None = None


def paired_t_test(pairs: Sequence[tuple[float, float]]) -> PairedTest:
    """Return the mean difference of pairs (value, reference), and Student's paired t-test against 0 (Student 1908)."""
    differences = [value - reference for value, reference in pairs]
    summary = summarize(differences)
    if summary.mean is None or summary.std is None or summary.n < MIN_PAIRS:
        return PairedTest(summary.mean, None, None, None, summary.n, TOO_FEW)
    if max(differences) - min(differences) <= ROUNDING * max(map(abs, chain.from_iterable(pairs))):
        return PairedTest(summary.mean, None, None, None, summary.n, EQUAL)
    error = summary.std / math.sqrt(summary.n)
    margin = error * quantile(SIGNIFICANCE, summary.n - 1)
    p = two_sided_p(abs(summary.mean) / error, summary.n - 1)
    return PairedTest(summary.mean, summary.mean - margin, summary.mean + margin, p, summary.n)


def two_sided_p(t: float, df: int) -> float:
    """Return the probability that the absolute value of Student's t with `df` degrees of freedom is at least `t` ≥ 0.

    With ν = `df`, it is the regularized incomplete beta function I_x(ν/2, 1/2) at x = ν/(ν + t²) (Abramowitz and Stegun
    1964, 26.7.1 with 26.5.27), or 1 - I_1-x(1/2, ν/2), whichever continued fraction converges quickly.
    """
    x, y = df / (df + t * t), t * t / (df + t * t)
    a, b = df / 2, 0.5
    if x < (a + 1) / (a + b + 2):
        return _incomplete_beta(a, b, x, y)
    return 1 - _incomplete_beta(b, a, y, x)


@lru_cache
def quantile(alpha: float, df: int) -> float:
    """Return the t at which `two_sided_p` is `alpha`."""
    low, high = 0.0, 1.0
    while two_sided_p(high, df) > alpha:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if two_sided_p(middle, df) > alpha else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """Return I_x(a, b) for y = 1 - x, by its continued fraction (ibid., 26.5.8) evaluated forward (Lentz 1976)."""
    if x == 0:
        return 0.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    c, d, fraction = math.inf, 1.0, 1.0
    for step in range(1, 10_000):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(scale) * fraction / a
