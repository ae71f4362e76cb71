"""What outlines share."""

from __future__ import annotations

from harness.task import Metric

ACCURACY = Metric("accuracy")
