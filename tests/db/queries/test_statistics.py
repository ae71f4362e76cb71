"""Differences over seeds, compared with scipy's tests."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from db.queries.statistics import MIN_PAIRS, paired_t_test, quantile, two_sided_p

values = st.floats(-1e4, 1e4).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(values, values), min_size=MIN_PAIRS, max_size=40))
def test_it_is_students_paired_test(pairs: list[tuple[float, float]]) -> None:
    differences = [value - other for value, other in pairs]
    test = paired_t_test(differences)
    assert test.n == len(pairs)
    assert test.mean == pytest.approx(math.fsum(differences) / len(differences), abs=1e-9)
    assert test.low is not None
    assert test.high is not None
    assert test.p is not None
    if max(differences) - min(differences) < 1e-6:
        return  # there scipy warns of lost digits
    theirs = stats.ttest_rel([value for value, _ in pairs], [other for _, other in pairs])
    low, high = theirs.confidence_interval(0.95)
    wide = high - low
    assert [test.low, test.high] == pytest.approx([low, high], abs=1e-6 * wide)
    assert test.p == pytest.approx(theirs.pvalue, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("differences", [[], [1.0], [1.0, 2.0]])
def test_too_few_seeds_say_nothing(differences: list[float]) -> None:
    test = paired_t_test(differences)
    assert (test.low, test.high, test.p, test.n) == (None, None, None, len(differences))


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.25, 0.0)])
def test_equal_differences_have_no_width(value: float, p: float) -> None:
    test = paired_t_test([value] * 4)
    assert (test.low, test.high, test.p) == (value, value, p)


@given(st.floats(1e-6, 1e6), st.integers(1, 10**5))
def test_students_t_is_scipys(t: float, df: int) -> None:
    assert two_sided_p(t, df) == pytest.approx(2 * special.stdtr(df, -t), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 19, 99, 1000, 10**6])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.01, 1e-6])
def test_its_quantiles_are_scipys(alpha: float, df: int) -> None:
    assert quantile(alpha, df) == pytest.approx(special.stdtrit(df, 1 - alpha / 2), rel=1e-9)


def test_students_t_at_its_ends() -> None:
    assert (two_sided_p(0.0, 5), two_sided_p(1e200, 5), two_sided_p(math.inf, 5)) == (1.0, 0.0, 0.0)
