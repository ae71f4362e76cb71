"""Friedman's test and the post-hoc tests after it: which methods differ, from their values in common blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dropbench.db.statistics.corrections import SIGNIFICANCE, holm
from dropbench.db.statistics.seeds import ROUNDING

Matrix = NDArray[np.float64]


MIN_METHODS, MIN_BLOCKS = 3, 5
"""Minimum for a Friedman test."""
MAX_EXACT = 50
"""Differences up to which Wilcoxon's test is exact, as in scipy without ties."""


def ranks_of(scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the ranks in each block, 1 for the highest score; scores equal up to rounding share their mean rank."""
    from scipy.stats import rankdata

    return [rankdata(_levels(-np.asarray(row, dtype=float), ROUNDING * np.abs(row))).tolist() for row in scores]


def _levels(values: Matrix, tolerances: Matrix) -> NDArray[np.int64]:
    """Return the place of each of (n,) values among the different ones; values within their tolerances are equal."""
    order = np.argsort(values)
    steps = np.diff(values[order]) > np.maximum(tolerances[order][1:], tolerances[order][:-1])
    levels = np.empty(len(values), dtype=int)
    levels[order] = np.concatenate([[0], np.cumsum(steps)])
    return levels


def friedman(ranks: Sequence[Sequence[float]]) -> dict[str, float] | None:
    """Return statistic and p of the test that all methods are equal (Friedman 1937); None for too few ranks."""
    if len(ranks) < MIN_BLOCKS or len(ranks[0]) < MIN_METHODS or all(len(set(row)) == 1 for row in ranks):
        return None
    from scipy.stats import friedmanchisquare

    statistic, p = friedmanchisquare(*zip(*ranks, strict=True))
    return {"statistic": float(statistic), "p": float(p)}


def critical_difference(methods: int, blocks: int) -> float:
    """Return the smallest significant difference of two mean ranks by Nemenyi's test (Demšar 2006, section 3.2.2)."""
    from scipy.stats import studentized_range

    return float(studentized_range.isf(SIGNIFICANCE, methods, np.inf)) * _standard_error(methods, blocks)


def nemenyi(mean_ranks: Sequence[float], blocks: int) -> Matrix:
    """Return the p-values of Nemenyi's test by pair of methods, (k, k), with ones in the diagonal."""
    from scipy.stats import studentized_range

    ranks = np.asarray(mean_ranks, dtype=float)
    differences = np.abs(ranks[:, None] - ranks) / _standard_error(len(ranks), blocks)
    p_values: Matrix = np.ones(differences.shape)
    upper = np.triu_indices(len(ranks), 1)
    p_values[upper] = studentized_range.sf(differences[upper], len(ranks), np.inf)
    return np.minimum(p_values, p_values.T)


def _standard_error(methods: int, blocks: int) -> float:
    """Return that of a mean rank under the hypothesis that all methods are equal."""
    return math.sqrt(methods * (methods + 1) / (12 * blocks))


def wilcoxon_holm(values: ArrayLike) -> Matrix:
    """Return the p-values of Wilcoxon's signed-rank test by pair of methods, after Holm's correction for all pairs.

    Unlike Nemenyi's, the test of a pair does not depend on the other methods (Benavoli et al. 2016).

    Args:
        values: the value of each method (k) in each block (N), (N, k).
    """
    table = np.asarray(values, dtype=float)
    pairs = list(combinations(range(table.shape[1]), 2))
    p_values = [wilcoxon(table[:, first], table[:, second]) for first, second in pairs]
    matrix: Matrix = np.ones((table.shape[1],) * 2)
    for pair, p in zip(pairs, holm(p_values), strict=True):
        matrix[pair] = matrix[pair[::-1]] = p
    return matrix


def wilcoxon(first: ArrayLike, second: ArrayLike) -> float:
    """Return the p-value of Wilcoxon's signed-rank test (1945) of pairs, two-sided; equal pairs are left out.

    Differences that differ by the rounding of the values alone are ties. Up to `MAX_EXACT` differences it is exact,
    with ties, too, for which scipy needs seconds. The distribution of the sum of the positive ranks is the product of
    one polynomial per rank; doubled ranks are integers.
    """
    from scipy.stats import rankdata
    from scipy.stats import wilcoxon as approximate

    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    values, tolerances = a - b, ROUNDING * np.maximum(np.abs(a), np.abs(b))
    differ = np.abs(values) > tolerances
    values, tolerances = values[differ], tolerances[differ]
    if not len(values):
        return 1.0
    levels = 1 + _levels(np.abs(values), tolerances)
    if len(values) > MAX_EXACT:
        return float(approximate(np.copysign(levels, values)).pvalue)
    ranks = np.rint(2 * rankdata(levels)).astype(int)
    counts = np.ones(1)
    for rank in ranks:
        counts = np.pad(counts, (0, rank)) / 2 + np.pad(counts, (rank, 0)) / 2
    positive = int(ranks[values > 0].sum())
    return min(1.0, 2 * float(min(counts[: positive + 1].sum(), counts[positive:].sum())))


def groups(mean_ranks: Sequence[float], difference: float) -> list[list[int]]:
    """Return the largest groups of methods whose mean ranks differ by less than `difference`, the best first.

    The members are indices of `mean_ranks`. A method that differs from all others is a group of its own.
    """
    order = sorted(range(len(mean_ranks)), key=lambda index: mean_ranks[index])
    found: list[list[int]] = []
    last = -1
    for start, first in enumerate(order):
        end = max(index for index, other in enumerate(order) if mean_ranks[other] - mean_ranks[first] < difference)
        if end > last:
            found.append(order[start : end + 1])
            last = end
    return found


def letters(members: Sequence[Sequence[int]], methods: int) -> list[str]:
    """Return the letters of each method's groups, ``ab``: methods without a common letter differ (Piepho 2004)."""
    names: list[Any] = ["" for _ in range(methods)]
    for number, group in enumerate(members):
        for method in group:
            names[method] += chr(ord("a") + number) if number < 26 else f"({number + 1})"
    return names
