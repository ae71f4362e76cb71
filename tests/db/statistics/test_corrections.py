"""Corrections, compared with statsmodels and scipy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from dropbench.db.statistics.corrections import benjamini_hochberg, holm

P_VALUES = st.lists(st.floats(0, 1) | st.sampled_from([0.01, 0.02, 0.04]), min_size=1, max_size=40)


@pytest.mark.slow
@given(P_VALUES)
def test_as_statsmodels_corrects(p_values: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for ours, method in ((holm, "holm"), (benjamini_hochberg, "fdr_bh")):
        theirs = multitest.multipletests(p_values, method=method)[1]
        assert ours(p_values) == pytest.approx(theirs.tolist(), rel=1e-9, abs=1e-300)


@given(P_VALUES)
def test_as_scipy_controls_the_false_discovery_rate(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(false_discovery_control(p_values).tolist(), rel=1e-9)


def test_what_has_no_p_value_is_no_comparison() -> None:
    assert holm([None, 0.02, None, 0.03]) == [None, 0.04, None, 0.04]
    assert benjamini_hochberg([0.02, None, 0.03]) == [0.03, None, 0.03]
    assert holm([]) == benjamini_hochberg([]) == []
