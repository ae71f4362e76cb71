"""Expected validation performance over the number of tuned candidates."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, fsum


def expected_best(scores: Sequence[float]) -> list[float]:
    """Return the expected highest score of k candidates, for k = 1 … n (Dodge et al. 2019).

    It is the mean over all subsets of k of the n candidates, the unbiased estimator of Tang et al. (2020).

    Args:
        scores: one per candidate, drawn independently or from a grid; a higher one is better.
    """
    ordered = sorted(scores)
    n = len(ordered)
    return [fsum(comb(rank, k - 1) / comb(n, k) * score for rank, score in enumerate(ordered)) for k in range(1, n + 1)]
