"""Differences over seeds, compared with scipy's tests."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dropbench.db.statistics.t_test import EQUAL, MIN_PAIRS, TOO_FEW, paired_t_test, quantile, two_sided_p

values = st.floats(-1e4, 1e4).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(values, values), min_size=MIN_PAIRS, max_size=40))
def test_it_is_students_paired_test(pairs: list[tuple[float, float]]) -> None:
    differences = [value - other for value, other in pairs]
    test = paired_t_test(pairs)
    assert test.n == len(pairs)
    assert test.mean == pytest.approx(math.fsum(differences) / len(differences), abs=1e-9)
    if max(differences) - min(differences) < 1e-6:
        return  # there scipy warns of lost digits
    assert (test.low is None, test.high is None, test.p is None, test.no_interval) == (False, False, False, None)
    theirs = stats.ttest_rel([value for value, _ in pairs], [other for _, other in pairs])
    low, high = theirs.confidence_interval(0.95)
    wide = high - low
    assert [test.low, test.high] == pytest.approx([low, high], abs=1e-6 * wide)
    assert test.p == pytest.approx(theirs.pvalue, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("differences", [[], [1.0], [1.0, 2.0]])
def test_too_few_seeds_say_nothing(differences: list[float]) -> None:
    test = paired_t_test([(value, 0.0) for value in differences])
    assert (test.low, test.high, test.p, test.n) == (None, None, None, len(differences))
    assert test.no_interval == TOO_FEW


@given(st.integers(1, 1000), st.lists(st.integers(0, 1000), min_size=MIN_PAIRS, max_size=9), st.integers(-1000, 1000))
def test_equal_differences_have_no_interval(items: int, counts: list[int], more: int) -> None:
    """Accuracies of counts of correct items differ by the same number of items, but for rounding."""
    pairs = [(100.0 * ((count + more) / items), 100.0 * (count / items)) for count in counts]
    test = paired_t_test(pairs)
    assert (test.low, test.high, test.p, test.no_interval) == (None, None, None, EQUAL)
    assert test.mean == pytest.approx(100 * more / items, rel=1e-9, abs=1e-9)


@given(st.floats(1e-6, 1e6), st.integers(1, 10**5))
def test_students_t_is_scipys(t: float, df: int) -> None:
    assert two_sided_p(t, df) == pytest.approx(2 * special.stdtr(df, -t), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 19, 99, 1000, 10**6])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.01, 1e-6])
def test_its_quantiles_are_scipys(alpha: float, df: int) -> None:
    assert quantile(alpha, df) == pytest.approx(special.stdtrit(df, 1 - alpha / 2), rel=1e-9)


def test_students_t_at_its_ends() -> None:
    assert (two_sided_p(0.0, 5), two_sided_p(1e200, 5), two_sided_p(math.inf, 5)) == (1.0, 0.0, 0.0)
