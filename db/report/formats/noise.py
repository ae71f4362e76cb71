"""Lines below a table: what differences its seeds can detect, and how many comparisons it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dropbench.db.statistics.corrections import SIGNIFICANCE
from dropbench.db.statistics.t_test import MIN_PAIRS, quantile


@dataclass(frozen=True)
class Noise:
    """The noise of one comparison.

    Attributes:
        metric: label of the metric; the comparisons of one metric share a line.
        floor: standard deviation of the baseline over seeds; None for fewer than two.
        half_width: half the width of the difference's 95 % interval, t·s/√n; None without an interval.
        pairs: number of seeds that both have.
        text: formats a value of the metric.
    """

    metric: str
    floor: float | None
    half_width: float | None
    pairs: int
    text: Callable[[float], str]


def noise_lines(noises: Iterable[Noise], baseline: str) -> list[str]:
    """Return one line per metric with the noise floor, and the smallest difference that the table can detect.

    A difference is detected if it is significant after Holm's correction, whose first step divides the level by the
    number of comparisons: the detectable one is t·s/√n, with t at that level. Both numbers are root mean squares over
    the comparisons, as single standard deviations of few seeds vary by chance.
    """
    by_metric: dict[str, list[Noise]] = {}
    for noise in noises:
        by_metric.setdefault(noise.metric, []).append(noise)
    total = sum(noise.half_width is not None for group in by_metric.values() for noise in group)
    lines = []
    for metric, group in by_metric.items():
        text = group[0].text
        parts = []
        if floors := [noise.floor for noise in group if noise.floor is not None]:
            parts.append(f"noise floor {text(_pooled(floors))} (pooled std of {baseline} over seeds)")
        if tested := [(noise.half_width, noise.pairs) for noise in group if noise.half_width is not None]:
            width = text(_pooled([half_width * _wider(total, pairs - 1) for half_width, pairs in tested]))
            counts = [pairs for _, pairs in tested]
            pairs = " to ".join(str(count) for count in dict.fromkeys((min(counts), max(counts))))
            correction = f", after Holm's correction for {total} differences" if total > 1 else ""
            parts.append(f"detectable difference {width} ({pairs} pairs{correction})")
        elif parts:
            parts.append(f"detectable difference: none with fewer than {MIN_PAIRS} pairs")
        if parts:
            lines.append(f"{metric}: {'; '.join(parts)}")
    return lines


def _wider(comparisons: int, df: int) -> float:
    """Return the factor by which the first step of Holm's correction makes an interval wider."""
    return quantile(SIGNIFICANCE / comparisons, df) / quantile(SIGNIFICANCE, df)


def _pooled(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in values) / len(values))


def significant(p_values: Sequence[float | None]) -> int:
    """Return the number of p-values below 5 %."""
    return sum(p is not None and p < SIGNIFICANCE for p in p_values)
