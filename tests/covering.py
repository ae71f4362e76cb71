"""Choose few of many combinations, so that every two values that may interact still meet in one of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def cover(cases: Iterable[Case], aspects: Callable[[Case], Iterable[Hashable]]) -> list[Case]:
    """Return cases that together have every aspect that any case has, in their order and always the same ones.

    Greedy: the case with the most aspects that are not covered yet comes next, of several the first one.
    """
    remaining = [(case, frozenset(aspects(case))) for case in cases]
    chosen: list[int] = []
    missing = frozenset[Hashable]().union(*(of_case for _, of_case in remaining))
    while missing:
        best = max(range(len(remaining)), key=lambda number: len(missing & remaining[number][1]))
        chosen.append(best)
        missing -= remaining[best][1]
    return [remaining[number][0] for number in sorted(chosen)]


def pairwise(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return combinations of one value per parameter, among which every two values of two parameters meet."""
    return cover(product(*values), lambda case: combinations(enumerate(case), 2))


def each_pair(**values: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize a test, by the names of its parameters, so that every two values of two parameters meet."""
    return pytest.mark.parametrize(tuple(values), pairwise(*values.values()), ids=str)
