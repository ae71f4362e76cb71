from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dropbench.harness.regularizers.schedules import SCHEDULES

DEPTHS = st.integers(1, 40)
RATIOS = st.floats(0.0, 0.999)


def ratios(schedule: str, ratio: float, depth: int) -> list[float]:
    return [SCHEDULES.get(schedule)(ratio, layer, depth) for layer in range(depth)]


@pytest.mark.parametrize("name", list(SCHEDULES))
@given(ratio=RATIOS, depth=DEPTHS)
def test_every_schedule_gives_ratios_between_0_and_the_ratio(name: str, ratio: float, depth: int) -> None:
    """Exactly: a ratio of 1 or more by rounding would drop all."""
    assert all(0.0 <= layer <= ratio for layer in ratios(name, ratio, depth))
    assert max(ratios(name, ratio, depth)) == ratio


@given(ratio=RATIOS, depth=st.integers(2, 40))
def test_linear_between_the_ratio_and_0(ratio: float, depth: int) -> None:
    """DropKey, Section 4.1.1: constant over the layers, linearly increased, linearly decreased."""
    up, down = ratios("increasing", ratio, depth), ratios("decreasing", ratio, depth)
    assert up[0] == down[-1] == 0.0
    assert up[-1] == down[0] == ratio
    assert down == pytest.approx(up[::-1])
    step = ratio / (depth - 1)
    assert [later - earlier for earlier, later in pairwise(up)] == pytest.approx([step] * (depth - 1), abs=1e-12)
    assert set(ratios("constant", ratio, depth)) == {ratio}
