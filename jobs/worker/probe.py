"""The probe of a trial: some steps of it, which measure its speed and are not lost, as a checkpoint follows them."""

from __future__ import annotations

import time
from collections.abc import Callable

STEPS = 30
WARM_UP_STEPS = 10
"""Steps before the measurement, in which buffers are allocated and kernels are compiled."""


class Probe:
    """Stop requests of a trial that is probed: those of its worker, and one after `STEPS` steps of its optimizer.

    As a context it counts the steps.

    Attributes:
        rate: steps per second after the warm-up; None if the probe has not ended.
        cause: the cause with which the attempt ends.
    """

    cause = f"probe: stopped after {STEPS} steps"

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop, self.steps, self.start = stop, 0, 0.0
        self.rate: float | None = None

    def __enter__(self) -> Probe:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.hook = register_optimizer_step_post_hook(self.count)
        return self

    def __exit__(self, *error: object) -> None:
        self.hook.remove()

    def __call__(self) -> bool:
        """Return whether the trial should stop."""
        return self.rate is not None or self.stop()

    def count(self, *step: object) -> None:
        """Count a step."""
        self.steps += 1
        if self.steps == WARM_UP_STEPS:
            self.start = _time()
        elif self.steps == STEPS:
            self.rate = (STEPS - WARM_UP_STEPS) / (_time() - self.start)


def _time() -> float:
    """Return the time in seconds at which the GPU, if one is used, has computed everything so far."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
