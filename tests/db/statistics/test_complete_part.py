from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.statistics.complete_part import largest_complete


@given(st.lists(st.frozensets(st.sampled_from("abcde")), max_size=8))
def test_no_part_without_gaps_has_more_results(present: list[frozenset[str]]) -> None:
    sets = [frozenset((name,) for name in names) for names in present]
    every = sorted({name for own in sets for name in own})
    parts = [frozenset(part) for size in range(2, len(every) + 1) for part in combinations(every, size)]
    most = max((len(part) * sum(part <= own for own in sets) for part in parts), default=0)
    largest = largest_complete(sets, sorted)
    assert len(largest) * sum(largest <= own for own in sets) == most
    assert bool(largest) == bool(most)
