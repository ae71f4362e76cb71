"""Summaries and aggregates of values over seeds, by name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import mul

from dropbench.harness.errors import unknown_name

LARGE = 1e150
"""A larger number has no square."""
ROUNDING = 1e-9
"""Means that differ by at most this fraction are equal up to rounding: sums of equal counts in another order."""


@dataclass(frozen=True)
class Summary:
    """Values over seeds: mean, sample standard deviation (None for n < 2), and their number."""

    mean: float | None
    std: float | None
    n: int


def summarize(values: Iterable[float | None]) -> Summary:
    """Return the mean and the sample standard deviation of the finite values that are not None."""
    numbers = [value for value in values if value is not None]
    n = len(numbers)
    if not n:
        return Summary(None, None, 0)
    if (largest := max(map(abs, numbers))) > LARGE:  # the perplexity of a diverged model, whose square overflows
        summary = summarize(number / largest for number in numbers)
        mean, std = (None if part is None else part * largest for part in (summary.mean, summary.std))
        return Summary(mean, None if std == math.inf else std, n)
    mean = math.fsum(numbers) / n
    if n == 1:
        return Summary(mean, None, 1)
    # `statistics` computes with fractions, which is too slow for millions of values. Subtracting the square of the
    # residual removes the rounding error of the mean, so that equal values have a deviation of exactly 0.
    deviations = [value - mean for value in numbers]
    residual = math.fsum(deviations)
    square = math.fsum(map(mul, deviations, deviations)) - residual * residual / n
    return Summary(mean, math.sqrt(max(square, 0.0) / (n - 1)), n)


def equal(first: float, second: float) -> bool:
    """Return whether two means are equal up to rounding."""
    return math.isclose(first, second, rel_tol=ROUNDING)


def mean_of(values: Iterable[float]) -> float:
    """Return the mean of one or more values."""
    mean = summarize(values).mean
    assert mean is not None
    return mean


AGGREGATES: dict[str, Callable[[Summary, list[float]], float | int | None]] = {
    "mean": lambda summary, numbers: summary.mean,
    "std": lambda summary, numbers: summary.std,
    "median": lambda summary, numbers: statistics.median(numbers) if numbers else None,
    "min": lambda summary, numbers: min(numbers, default=None),
    "max": lambda summary, numbers: max(numbers, default=None),
    "n": lambda summary, numbers: summary.n,
    "sem": lambda summary, numbers: None if summary.std is None else summary.std / math.sqrt(summary.n),
}
"""By name; std is the sample's, sem the standard error of the mean, both None for n < 2."""

Aggregates = dict[str, float | int | None]

DEFAULT_AGGREGATES = ("mean", "std", "n")


def aggregate(values: Iterable[float | None], names: Sequence[str] = DEFAULT_AGGREGATES) -> Aggregates:
    """Return the aggregates of the values that are not None, by name. Raise InputError for an unknown name."""
    for name in names:
        if name not in AGGREGATES:
            raise unknown_name("aggregate", name, AGGREGATES)
    numbers = [value for value in values if value is not None]
    summary = summarize(numbers)
    return {name: AGGREGATES[name](summary, numbers) for name in names}
