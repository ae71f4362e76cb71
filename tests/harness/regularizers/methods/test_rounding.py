"""Shares of whole numbers are rounded as they are written."""

from __future__ import annotations

from dropbench.harness.regularizers.methods.rounding import floor_share


def test_a_share_of_hundredths_is_exact() -> None:
    pairs = [(percent, number) for percent in range(101) for number in range(300)]
    assert all(floor_share(percent / 100, number) == percent * number // 100 for percent, number in pairs)
    assert all(floor_share(1 - percent / 100, number) == (100 - percent) * number // 100 for percent, number in pairs)
