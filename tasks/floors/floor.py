"""The score of a simple predictor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """A simple predictor, fitted on train, and its score on test.

    Attributes:
        name: of the predictor, such as ``majority class``.
        metric: name of the task's metric.
        value: the metric on test, in its unit.
    """

    name: str
    metric: str
    value: float
