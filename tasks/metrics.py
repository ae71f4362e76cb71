"""Metrics shared by several task specs."""

from __future__ import annotations

from harness.trials.metric import Metric

ACCURACY = Metric("accuracy")
