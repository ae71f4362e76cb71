"""Curves of several seeds merged into a band."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.report.page.records import merge_seeds

curve = st.lists(st.tuples(st.integers(0, 10_000), st.one_of(st.none(), st.floats(-1e6, 1e6))), max_size=60).map(
    lambda points: sorted(dict(points).items())
)


@given(st.lists(curve, max_size=5), st.integers(2, 50))
def test_a_band_encloses_its_curves(curves: list[list[tuple[int, float | None]]], limit: int) -> None:
    band = merge_seeds(curves, limit)
    kept = [[(step, value) for step, value in points if value is not None] for points in curves]
    kept = [points for points in kept if points]
    if not kept:
        assert band is None
        return
    assert band is not None
    assert len(band.steps) <= limit
    assert band.seeds == len(kept)
    steps = [step for points in kept for step, _ in points]
    assert (band.steps[0], band.steps[-1]) == (min(steps), max(steps))
    assert np.all(np.diff(band.steps) > 0)
    slack = 1e-9 * np.abs(band.mean) + 1e-9
    assert np.all(band.low <= band.mean + slack)
    assert np.all(band.mean <= band.high + slack)
    values = [value for points in kept for _, value in points]
    assert band.low.min() >= min(values) - 1e-6
    assert band.high.max() <= max(values) + 1e-6


def test_a_band_of_the_same_steps_is_their_mean() -> None:
    band = merge_seeds([[(1, 1.0), (2, 3.0)], [(1, 3.0), (2, None)], [(1, 2.0)]], 10)
    assert band is not None
    assert [band.steps.tolist(), band.mean.tolist()] == [[1, 2], [2.0, 3.0]]
    assert [band.low.tolist(), band.high.tolist()] == [[1.0, 3.0], [3.0, 3.0]]
