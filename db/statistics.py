"""Differences over seeds: their mean, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from db.query import summarize

LEAST_PAIRS = 3
"""With two the interval is 18 times as wide as their distance: a number that says nothing."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Paired:
    """The mean of differences seed by seed, its confidence interval, and the p-value of Student's paired t-test.

    `low`, `high` and `p` are None below `LEAST_PAIRS`.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int


def paired(differences: Sequence[float]) -> Paired:
    """What differences of the same seeds say together (Student 1908): two-sided, with `CONFIDENCE`.

    Args:
        differences: one a seed that both sides have; at least one.
    """
    from scipy.special import stdtr, stdtrit

    found = summarize(differences)
    assert found.mean is not None
    if found.n < LEAST_PAIRS or found.std is None:
        return Paired(found.mean, None, None, None, found.n)
    error = found.std / math.sqrt(found.n)
    half = float(stdtrit(found.n - 1, (1 + CONFIDENCE) / 2)) * error
    certain = 0.0 if found.mean else 1.0
    p = 2 * float(stdtr(found.n - 1, -abs(found.mean) / error)) if error else certain
    return Paired(found.mean, found.mean - half, found.mean + half, p, found.n)
