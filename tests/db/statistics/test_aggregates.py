"""Aggregates, compared with their published formulas, scipy's tests and their simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import brunnermunzel, mannwhitneyu, t

from dropbench.db.statistics import aggregates
from dropbench.db.statistics.aggregates import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)

RNG = np.random.default_rng(0)
VALUES = st.lists(st.sampled_from([1.0, 1.5, 2.0, 7.0]) | st.floats(-10, 10), min_size=1, max_size=40)


@given(VALUES)
def test_interquartile_mean(values: list[float]) -> None:
    """The mean of what remains without ⌊n/4⌋ values at either end."""
    cut = len(values) // 4
    assert interquartile_mean(values) == pytest.approx(np.mean(sorted(values)[cut : len(values) - cut]), rel=1e-9)


@given(VALUES, VALUES)
def test_performance_profile(values: list[float], thresholds: list[float]) -> None:
    expected = [np.mean([value > threshold for value in values]) for threshold in thresholds]
    assert performance_profile(values, thresholds).tolist() == pytest.approx(expected, abs=1e-12)


def test_probability_of_improvement_is_the_mean_of_mann_whitneys_u() -> None:
    """As rliable computes it; its error is that of scipy's Brunner-Munzel test if there is one block."""
    blocks = [(RNG.normal(1, 1, 5).round(1), RNG.normal(0, 1, 7).round(1)) for _ in range(6)]
    expected = [mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in blocks]
    assert probability_of_improvement(blocks).value == pytest.approx(np.mean(expected), rel=1e-9)
    x, y = RNG.normal(0.3, 1, 15), RNG.normal(0, 2, 12)
    estimate = probability_of_improvement([(x, y)])
    assert estimate.high is not None
    error = (estimate.high - estimate.value) / t.isf(0.025, 25)
    statistic = brunnermunzel(y, x).statistic
    assert (estimate.value - 0.5) / error == pytest.approx(statistic, rel=1e-9)


def test_what_has_no_interval() -> None:
    assert probability_of_improvement([([1.0], [0.0, 2.0])]).low is None
    assert stratified_bootstrap([[1.0], [0.0, 2.0]]).low is None
    certain = probability_of_improvement([([3.0, 4.0], [1.0, 2.0])])
    assert (certain.low, certain.value, certain.high) == (1.0, 1.0, 1.0)


def test_the_mean_of_a_bootstrap_has_students_interval() -> None:
    """With n - 1 draws, the standard error of a mean is unbiased, whatever the number of runs."""
    block = RNG.normal(0, 1, 5)
    estimate = stratified_bootstrap([block], np.mean)
    margin = t.isf(0.025, 4) * block.std(ddof=1) / 5**0.5
    assert [estimate.low, estimate.high] == pytest.approx(
        [block.mean() - margin, block.mean() + margin], abs=0.05 * margin
    )


def test_many_runs_are_resampled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "MAX_DRAWN", 5000)
    estimate = stratified_bootstrap([RNG.normal(0, 1, 50)] * 2)
    assert estimate.low is not None
    assert estimate.low < estimate.value < (estimate.high or 0.0)
