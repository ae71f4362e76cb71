from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from db.statistics import paired

NUMBERS = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=3, max_size=20)


@given(NUMBERS)
def test_as_scipy_has_it(pairs: list[tuple[float, float]]) -> None:
    before, after = zip(*pairs, strict=True)
    differences = [b - a for a, b in pairs]
    found = paired(differences)
    if max(differences) - min(differences) < 1e-6:
        return  # no deviation to speak of: scipy warns
    wanted = ttest_rel(after, before)
    interval = wanted.confidence_interval(0.95)
    assert found.n == len(pairs)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)


def test_too_few_say_nothing() -> None:
    for values in ([], [1.0], [1.0, 2.0]):
        found = paired(values)
        assert (found.low, found.high, found.p, found.n) == (None, None, None, len(values))
    assert (paired([]).mean, paired([1.0, 2.0]).mean) == (None, 1.5)


def test_equal_differences() -> None:
    found = paired([2.0, 2.0, 2.0])
    assert (found.mean, found.low, found.high, found.p) == (2.0, 2.0, 2.0, 0.0)
    assert paired([0.0] * 3).p == 1.0
