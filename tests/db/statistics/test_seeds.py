from __future__ import annotations

import numpy as np
import pytest

from dropbench.db.statistics.seeds import mean_of, summarize


def test_summary() -> None:
    assert summarize([1.0, None, 2.0, 4.0]) == summarize([4.0, 2.0, 1.0])
    summary = summarize([1.0, 2.0, 4.0])
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.std == pytest.approx((((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2) ** 0.5)
    assert (summarize([5.0]).mean, summarize([5.0]).std, summarize([5.0]).n) == (5.0, None, 1)
    assert (summarize([None]).mean, summarize([]).n) == (None, 0)


@pytest.mark.parametrize("value", [1e160, 1e200, 1.7e308])
def test_large_numbers_have_a_mean_and_a_deviation(value: float) -> None:
    """A diverged language model has such perplexities."""
    summary = summarize([value, value / 2, value / 4])
    assert summary.mean == pytest.approx(value * (7 / 12))
    assert summary.std == pytest.approx(value * np.std([1, 0.5, 0.25], ddof=1))
    assert summarize([value] * 5).std == 0.0
    assert mean_of([value] * 5) == pytest.approx(value)
    assert summarize([1.7e308, -1.7e308]).std is None
