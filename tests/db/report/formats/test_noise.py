from __future__ import annotations

import math

from scipy.stats import t

from dropbench.db.report.formats.noise import Noise, noise_lines, significant


def two(value: float) -> str:
    return f"{value:.2f}"


def test_a_line_per_metric() -> None:
    noises = [
        Noise("accuracy", 3.0, 6.0, 5, two), Noise("accuracy", 4.0, 8.0, 3, two), Noise("accuracy", None, None, 1, two),
        Noise("loss", 0.5, None, 2, two), Noise("entropy", None, None, 0, two),
    ]  # fmt: skip
    # Holm's first step compares the smaller of two p-values with 2.5 %.
    widths = [half * t.isf(0.0125, df) / t.isf(0.025, df) for half, df in ((6.0, 4), (8.0, 2))]
    detectable = math.sqrt(sum(width**2 for width in widths) / 2)
    assert noise_lines(noises, "none") == [
        f"accuracy: noise floor 3.54 (pooled std of none over seeds); detectable difference {detectable:.2f} (3 to 5"
        " pairs, after Holm's correction for 2 differences)",
        "loss: noise floor 0.50 (pooled std of none over seeds); detectable difference: none with fewer than 3 pairs",
    ]


def test_significant_p_values() -> None:
    assert significant([0.01, 0.05, None, 0.049]) == 2
