"""Schedules of the drop ratio over the layers (DropKey, Section 3.2, "Scheduled Drop Ratio")."""

from __future__ import annotations

from collections.abc import Callable

from harness.registry import Registry

Schedule = Callable[[float, int, int], float]
"""(ratio, layer counted from 0, depth) -> the layer's ratio."""

SCHEDULES: Registry[Schedule] = Registry("schedule", "a function", callable)


@SCHEDULES.register("constant")
def constant(ratio: float, layer: int, depth: int) -> float:
    """Return the same ratio for every layer."""
    return ratio


@SCHEDULES.register("increasing", "up")
def increasing(ratio: float, layer: int, depth: int) -> float:
    """Increase linearly from 0 in the first layer to the ratio in the last; a single layer has the ratio."""
    return ratio * (layer / (depth - 1)) if depth > 1 else ratio


@SCHEDULES.register("decreasing", "down")
def decreasing(ratio: float, layer: int, depth: int) -> float:
    """Decrease linearly from the ratio in the first layer to 0 in the last; a single layer has the ratio."""
    return ratio * ((depth - 1 - layer) / (depth - 1)) if depth > 1 else ratio
