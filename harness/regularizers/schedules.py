"""Schedules of the drop ratio over the layers (DropKey, Section 3.2, "Scheduled Drop Ratio") and over the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from dropbench.harness.registry import Registry

Schedule = Callable[[float, int, int], float]
"""(ratio, layer counted from 0, depth) -> the layer's ratio."""

SCHEDULES: Registry[Schedule] = Registry("schedule", "a function", callable)


@SCHEDULES.register("constant")
def constant(ratio: float, layer: int, depth: int) -> float:
    """Return the same ratio for every layer."""
    return ratio


@SCHEDULES.register("increasing")
def increasing(ratio: float, layer: int, depth: int) -> float:
    """Increase linearly from 0 in the first layer to the ratio in the last; a single layer has the ratio."""
    return ratio * (layer / (depth - 1)) if depth > 1 else ratio


@SCHEDULES.register("decreasing")
def decreasing(ratio: float, layer: int, depth: int) -> float:
    """Decrease linearly from the ratio in the first layer to 0 in the last; a single layer has the ratio."""
    return ratio * ((depth - 1 - layer) / (depth - 1)) if depth > 1 else ratio


class StepShape(NamedTuple):
    """A schedule over steps: (progress from 0 to 1, point) -> factor of the ratio from 0 to 1.

    `default` is the point if none is given; `maximum` is the largest point.
    """

    factor: Callable[[float, float], float]
    default: float
    maximum: float = 1.0


STEP_SCHEDULES: dict[str, StepShape] = {
    # Early and late dropout (Liu et al. 2023): active before or after the point.
    "early": StepShape(lambda progress, point: float(progress < point), 0.5),
    "late": StepShape(lambda progress, point: float(progress >= point), 0.5),
    "increasing": StepShape(lambda progress, point: min(1.0, progress / point), 1.0),
    "decreasing": StepShape(lambda progress, point: max(0.0, 1.0 - progress / point), 1.0),
    # Scheduled DropHead (Zhou et al. 2020): from the ratio down to 0 at the point, then up again.
    "v": StepShape(
        lambda progress, point: 1.0 - progress / point if progress < point else (progress - point) / (1.0 - point), 0.5
    ),
    # Curriculum dropout (Morerio et al. 2017): 1 - exp(-γ·t) with γ = point / number of steps.
    "curriculum": StepShape(lambda progress, point: 1.0 - math.exp(-point * progress), 10.0, math.inf),
}


def parse_step_schedule(text: Any) -> str:
    """Return a schedule over steps as ``constant`` or ``name@point``; raise ValueError if the text is none."""
    name, _, point = str(text).partition("@")
    if name == "constant" and not point:
        return name
    shape = STEP_SCHEDULES.get(name)
    try:
        number = float(point) if point else shape.default if shape else 0.0
    except ValueError:
        number = 0.0
    largest = shape.maximum if shape else 0.0
    if not (0.0 < number <= largest) or not math.isfinite(number) or (name == "v" and number == 1.0):
        expected = ", ".join(f"{known}@{known_shape.default:g}" for known, known_shape in STEP_SCHEDULES.items())
        raise ValueError(f"expected constant, or a schedule and its point in training, such as {expected}")
    return f"{name}@{number:g}"


StepSchedule = Annotated[str, BeforeValidator(parse_step_schedule)]


def step_factor(schedule: str, progress: float) -> float:
    """Return the share of the ratio at a step; `progress` is the share of all steps that are done, from 0 to 1."""
    if schedule == "constant":
        return 1.0
    name, _, point = schedule.partition("@")
    return STEP_SCHEDULES[name].factor(progress, float(point))
