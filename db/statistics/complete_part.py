"""The largest complete part of a table with gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Hashable)

MAX_CANDIDATES = 4096
"""Sets of methods that are tried."""


def largest_complete(
    present: Sequence[frozenset[Method]], order: Callable[[frozenset[Method]], Any]
) -> frozenset[Method]:
    """Return the two or more methods with the most results in blocks that have all of them; empty if none has.

    Of equals, it is the set with more methods, then the first by `order`. Candidates are the intersections of what the
    blocks have, of which at most `MAX_CANDIDATES` are tried, the most frequent first.

    Args:
        present: the methods that have a result, by block.
        order: a sort key.
    """
    distinct = Counter(present)
    candidates: set[frozenset[Method]] = set()
    for own, _ in distinct.most_common():
        if len(candidates) < MAX_CANDIDATES:
            candidates |= {own, *(own & other for other in candidates)}
    sizes = {
        names: (len(names) * sum(count for own, count in distinct.items() if names <= own), len(names))
        for names in candidates
        if len(names) > 1
    }
    best = max(sizes.values(), default=None)
    return min((names for names, size in sizes.items() if size == best), key=order, default=frozenset())
