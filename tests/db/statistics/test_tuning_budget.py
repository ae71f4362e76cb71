from __future__ import annotations

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.statistics.tuning_budget import expected_best


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=9))
def test_it_is_the_mean_over_all_subsets(scores: list[float]) -> None:
    """The definition of Tang et al. (2020)."""
    expected = [fmean(map(max, combinations(scores, k))) for k in range(1, len(scores) + 1)]
    assert expected_best(scores) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_of_no_candidate() -> None:
    assert expected_best([]) == []
