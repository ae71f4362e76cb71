"""What is told of values over seeds, by name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import mul

from harness.errors import unknown_name


@dataclass(frozen=True)
class Summary:
    """Values over seeds: mean, sample standard deviation (None for n < 2), and how many."""

    mean: float | None
    std: float | None
    n: int


def summarize(values: Iterable[float | None]) -> Summary:
    """Mean and sample standard deviation of those that are numbers."""
    numbers = [value for value in values if value is not None]
    n = len(numbers)
    if not n:
        return Summary(None, None, 0)
    mean = math.fsum(numbers) / n
    if n == 1:
        return Summary(mean, None, 1)
    # `statistics` reckons in fractions, which takes too long for millions. The rest takes out of the square what
    # rounding the mean put into it, so that equal values have no deviation at all.
    away = [value - mean for value in numbers]
    rest = math.fsum(away)
    square = math.fsum(map(mul, away, away)) - rest * rest / n
    return Summary(mean, math.sqrt(max(square, 0.0) / (n - 1)), n)


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

USUAL = ("mean", "std", "n")


def aggregate(values: Iterable[float | None], names: Sequence[str] = USUAL) -> dict[str, float | int | None]:
    """The aggregates of those values that are numbers, by name.

    Raises:
        InputError: a name is unknown.
    """
    for name in names:
        if name not in AGGREGATES:
            raise unknown_name("aggregate", name, AGGREGATES)
    numbers = [value for value in values if value is not None]
    summary = summarize(numbers)
    return {name: AGGREGATES[name](summary, numbers) for name in names}
