"""Corrections of p-values for the number of comparisons in a table."""

from __future__ import annotations

from collections.abc import Sequence

SIGNIFICANCE = 0.05
"""Level of all tests and, as 1 - level, of all intervals."""


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted to the family-wise error rate (Holm 1979); None stays None and does not count."""
    order = _ascending(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, position) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[position] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted to the false discovery rate (Benjamini and Hochberg 1995); None as in `holm`."""
    order = _ascending(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank in range(len(order), 0, -1):
        p, position = order[rank - 1]
        lowest = min(lowest, p * len(order) / rank)
        adjusted[position] = lowest
    return adjusted


def _ascending(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    return sorted((p, position) for position, p in enumerate(p_values) if p is not None)
