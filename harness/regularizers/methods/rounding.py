"""Whole numbers that are a share of another one."""

from __future__ import annotations

import math

DUST = 1e-9
"""More than floats lose in a product of a share and a number, and less than any share that is meant."""


def floor_share(share: float, number: int) -> int:
    """Return ⌊share · number⌋ of the share that is meant: 0.29 of 100 is 29, although 0.29 * 100 is below 29."""
    return math.floor(share * number + DUST)
