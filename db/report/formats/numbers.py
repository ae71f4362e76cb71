"""Write metrics, deviations and differences as text."""

from __future__ import annotations

from dropbench.db.report.formats.noise import significant
from dropbench.db.report.view.cells import CellResult
from dropbench.db.statistics.t_test import EQUAL
from dropbench.harness.trials.metric import Metric

MINUS = "−"
SMALL = 1e-3
"""Values below it would show at most one digit of three decimals."""
SIGNIFICANT = "†"
"""Mark of differences that are significant after Holm's correction."""


def format_metric(value: float | None, metric: Metric, *, signed: bool = False, like: float | None = None) -> str:
    """Return a value with the decimals of its metric, or else of the unit; zero after rounding has no sign.

    Percentages and mm have two decimals, counts none, others three, or powers of ten if they, or the value `like` next
    to them, are too small for that.
    """
    if value is None:
        return ""
    digits = {"%": ".2f", "mm": ".2f", "count": ",.0f"}.get(metric.unit, ".3f")
    if metric.decimals is not None:
        digits = f",.{metric.decimals}f"
    elif digits == ".3f" and 0.0 < abs(value if like is None else like) < SMALL:
        digits = ".2e"
    text = f"{value:{'+' if signed else ''}{digits}}"
    if float(text.replace(",", "")) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def mean_std(value: float | None, std: float | None, metric: Metric) -> str:
    """Return mean ± std; the mean alone without a std."""
    deviation = f" ± {format_metric(std, metric, like=value)}" if value is not None and std is not None else ""
    return format_metric(value, metric) + deviation


def delta_text(result: CellResult, interval: bool = True) -> str:
    """Return the difference from the baseline, with a mark if it is significant after Holm's correction.

    With its interval, or `EQUAL` instead of one, if `interval` is true.
    """
    text = format_metric(result.delta, result.metric, signed=True, like=result.mean)
    if interval and result.interval is not None:
        low, high = (format_metric(bound, result.metric, signed=True, like=result.mean) for bound in result.interval)
        text = f"{text} [{low}, {high}]"
    elif interval and result.no_interval == EQUAL:
        text = f"{text} [{EQUAL}]"
    return f"{text} {SIGNIFICANT}" if significant([result.p_holm]) else text
