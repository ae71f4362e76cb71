"""Post-hoc tests after Friedman's test: which regularizers differ, from their values in common blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from db.statistics.corrections import SIGNIFICANCE, holm

Matrix = NDArray[np.float64]


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
    from scipy.stats import wilcoxon

    table = np.asarray(values, dtype=float)
    pairs = list(combinations(range(table.shape[1]), 2))
    p_values: list[float | None] = []
    for first, second in pairs:
        differences = table[:, first] - table[:, second]
        p_values.append(float(wilcoxon(differences).pvalue) if differences.any() else 1.0)
    matrix: Matrix = np.ones((table.shape[1],) * 2)
    for (first, second), p in zip(pairs, holm(p_values), strict=True):
        matrix[first, second] = matrix[second, first] = p if p is not None else 1.0
    return matrix


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
