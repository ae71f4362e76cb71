"""Differences over seeds, held beside scipy's tests."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from db.statistics import ENOUGH, paired

values = st.floats(-1e4, 1e4).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(values, values), min_size=ENOUGH, max_size=40))
def test_it_is_students_paired_test(pairs: list[tuple[float, float]]) -> None:
    differences = [one - other for one, other in pairs]
    found = paired(differences)
    assert found.n == len(pairs)
    assert found.mean == pytest.approx(math.fsum(differences) / len(differences), abs=1e-9)
    assert found.low is not None
    assert found.high is not None
    assert found.p is not None
    if max(differences) - min(differences) < 1e-6:
        return  # there scipy warns of lost digits
    theirs = stats.ttest_rel([one for one, _ in pairs], [other for _, other in pairs])
    low, high = theirs.confidence_interval(0.95)
    wide = high - low
    assert [found.low, found.high] == pytest.approx([low, high], abs=1e-6 * wide)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("differences", [[], [1.0], [1.0, 2.0]])
def test_too_few_seeds_say_nothing(differences: list[float]) -> None:
    found = paired(differences)
    assert (found.low, found.high, found.p, found.n) == (None, None, None, len(differences))


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.25, 0.0)])
def test_equal_differences_have_no_width(value: float, p: float) -> None:
    found = paired([value] * 4)
    assert (found.low, found.high, found.p) == (value, value, p)
