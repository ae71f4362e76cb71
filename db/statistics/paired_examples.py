"""Paired tests over the examples of a test set: two methods that predicted the same examples.

They measure the uncertainty from a finite test set. The uncertainty from training seeds is that of
`dropbench.db.statistics.t_test.paired_t_test`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dropbench.db.statistics.corrections import SIGNIFICANCE

MAX_BATCH = 2**22
"""Numbers that a batch of resamples holds, 32 MB."""

Statistic = Callable[..., Any]
"""A reduction with the argument ``axis``, such as `numpy.mean`."""


@dataclass(frozen=True)
class McNemar:
    """McNemar's exact test of two methods on the same examples.

    Attributes:
        only_a, only_b: number of examples that only the one method has correct.
        difference: accuracy of a minus accuracy of b, in [-1, 1].
        p: two-sided p-value; 1 if the methods disagree on no example.
        n: number of examples.
    """

    only_a: int
    only_b: int
    difference: float
    p: float
    n: int


@dataclass(frozen=True)
class PairedBootstrap:
    """A bootstrap over examples of the difference between two methods.

    Attributes:
        difference: statistic of a minus statistic of b.
        low, high: its 95 % percentile interval.
        p: two-sided p-value.
        n: number of examples.
    """

    difference: float
    low: float
    high: float
    p: float
    n: int


def mcnemar(a_correct: ArrayLike, b_correct: ArrayLike) -> McNemar:
    """Test whether two methods have the same accuracy (McNemar 1947), by the exact binomial distribution.

    Args:
        a_correct: booleans (n,), true for the examples that a has correct.
        b_correct: those of b, in the same order.

    Raises:
        ValueError: there is no example, or the shapes differ.
    """
    from scipy.stats import binomtest

    a, b = (np.asarray(correct, dtype=bool) for correct in (a_correct, b_correct))
    _check(a, b)
    only_a, only_b = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    p = float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
    return McNemar(only_a, only_b, (only_a - only_b) / len(a), p, len(a))


def paired_bootstrap(
    a_scores: ArrayLike, b_scores: ArrayLike, statistic: Statistic = np.mean, draws: int = 10_000, seed: int = 0
) -> PairedBootstrap:
    """Resample the examples with replacement, the same ones for both methods (Koehn 2004).

    The p-value is the share of resamples whose difference is at least as far from their mean as the observed one is
    from 0 (Riezler and Maxwell 2005), with the observed one counted as a resample.

    Args:
        a_scores: one score per example, (n,); for a corpus metric, the counts that it is computed from, (n, k), such
            as those of matching n-grams.
        b_scores: those of b, in the same order.
        statistic: called as ``statistic(scores, axis=1)`` with resamples (m, n, …); returns one number each, (m,).
        draws: number of resamples.
        seed: seed of the generator.

    Raises:
        ValueError: there is no example, or the shapes differ.
    """
    a, b = np.asarray(a_scores, dtype=float), np.asarray(b_scores, dtype=float)
    _check(a, b)
    generator = np.random.default_rng(seed)
    batch = max(1, MAX_BATCH // max(a.size, 1))
    differences = np.empty(draws)
    for start in range(0, draws, batch):
        index = generator.integers(0, len(a), (min(batch, draws - start), len(a)))
        differences[start : start + batch] = statistic(a[index], axis=1) - statistic(b[index], axis=1)
    observed = float(statistic(a[None], axis=1)[0] - statistic(b[None], axis=1)[0])
    low, high = np.quantile(differences, [SIGNIFICANCE / 2, 1 - SIGNIFICANCE / 2])
    # Rounding errors make equal differences differ by a little.
    extreme = np.abs(differences - differences.mean()) >= abs(observed) * (1 - 1e-9)
    return PairedBootstrap(observed, float(low), float(high), float((extreme.sum() + 1) / (draws + 1)), len(a))


def _check(a: NDArray[Any], b: NDArray[Any]) -> None:
    if a.shape != b.shape or a.ndim == 0 or not len(a):
        raise ValueError(f"two methods' scores have the shapes {a.shape} and {b.shape}: expected one shape (n > 0, …)")
