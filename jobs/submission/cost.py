"""Estimate the GPU-hours of queued trials from recorded speeds, before they are spent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from dropbench.db.queries.rates import Rate, Shape, recorded_rates, shapes_of
from dropbench.db.store.store import Store
from dropbench.harness.errors import count_of
from dropbench.jobs.slurm.profile import Profile

TOTAL = "all"
PROBE = "the submission with `--probe` measures it"


class Speed(NamedTuple):
    """The speed of a shape on the GPUs of a profile.

    Attributes:
        steps: steps of a whole trial.
        gpu_hours_per_step: GPU-hours per step.
        seconds_per_step: seconds per step of a trial on all GPUs of the profile.
    """

    steps: int
    gpu_hours_per_step: float
    seconds_per_step: float


@dataclass
class Cost:
    """GPU-hours that some queued trials still need.

    Attributes:
        trials: number of trials whose cost is known.
        gpu_hours: their GPU-hours.
        unknown: number of trials by the shape of which no speed is known.
    """

    trials: int = 0
    gpu_hours: float = 0.0
    unknown: dict[Shape, int] = field(default_factory=dict)

    def add(self, shape: Shape, gpu_hours: float | None) -> None:
        """Add a trial; `gpu_hours` is None if its cost is not known."""
        if gpu_hours is None:
            self.unknown[shape] = self.unknown.get(shape, 0) + 1
        else:
            self.trials, self.gpu_hours = self.trials + 1, self.gpu_hours + gpu_hours

    def __str__(self) -> str:
        known = f"about {self.gpu_hours:,.1f} GPU-hours for {count_of(self.trials, 'trial')}"
        unknown = (
            f"{'unknown' if self.trials else 'unknown GPU-hours'} for {count_of(sum(self.unknown.values()), 'trial')}"
        )
        return ", ".join([known] * bool(self.trials) + [unknown] * bool(self.unknown))

    def to_json(self) -> dict[str, Any]:
        """Return the GPU-hours of the trials whose cost is known, and the numbers of trials."""
        return {"gpu_hours": self.gpu_hours, "trials": self.trials, "unknown": sum(self.unknown.values())}


@dataclass(frozen=True)
class Estimate:
    """The cost of queued trials by suite, in which a trial of several suites counts for each, and their total."""

    suites: dict[str, Cost]
    total: Cost

    def lines(self) -> list[str]:
        """Return a line per suite, and one for all trials if that differs."""
        lines = [f"{suite}: {cost}" for suite, cost in self.suites.items()]
        if [*self.suites.values()] != [self.total]:
            lines.append(f"{TOTAL}: {self.total}")
        if self.total.unknown:
            labels = sorted({shape.label for shape in self.total.unknown})
            lines.append(f"no speed of {', '.join(labels)} is recorded on these GPUs: {PROBE}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the costs by suite, and of all trials."""
        return {**{suite: cost.to_json() for suite, cost in self.suites.items()}, TOTAL: self.total.to_json()}


def estimate(store: Store, ids: Sequence[str], profile: Profile) -> Estimate | None:
    """Return the GPU-hours that queued trials need with a profile; None if it requests no GPU.

    A trial costs its remaining steps times the recorded GPU-hours per step of trials of the same shape on the same
    kind of GPU: on as many GPUs if there are such attempts, or else as if GPU-hours did not depend on their number.
    """
    if not profile.gpus:
        return None
    known = known_speeds(store, profile)
    suites, found = store.suites(ids), Estimate({}, Cost())
    for id, (shape, done) in shapes_of(store, ids).items():
        gpu_hours = None
        if shape in known:
            gpu_hours = max(0, known[shape].steps - done) * known[shape].gpu_hours_per_step
        for cost in [found.total, *(found.suites.setdefault(name, Cost()) for name in suites.get(id, ()))]:
            cost.add(shape, gpu_hours)
    return found


def trials_to_probe(store: Store, ids: Sequence[str], profile: Profile) -> list[str]:
    """Return one trial of each shape whose cost is unknown."""
    found = estimate(store, ids, profile)
    unknown = found.total.unknown if found is not None else {}
    return [*{shape: id for id, (shape, _) in shapes_of(store, ids).items() if shape in unknown}.values()]


def known_speeds(store: Store, profile: Profile) -> dict[Shape, Speed]:
    """Return the speeds that are known on the GPUs of a profile, by shape."""
    rates = recorded_rates(store)
    return {shape: speed for shape, recorded in rates.items() if (speed := _speed(recorded, profile))}


def _speed(rates: Sequence[Rate], profile: Profile) -> Speed | None:
    """Return the speed on the GPUs of a profile; None if it is not known."""
    rates = [rate for rate in rates if profile.gpu_type is None or is_of_type(rate.device, profile.gpu_type)]
    rates = [rate for rate in rates if rate.gpus == profile.gpus * profile.nodes] or rates
    if len({rate.device for rate in rates}) != 1:  # a profile without gpu_type may get any of several
        return None
    hours = fmean(rate.seconds_per_step * rate.gpus for rate in rates) / 3600
    return Speed(max(rate.steps for rate in rates), hours, hours * 3600 / (profile.gpus * profile.nodes))


def is_of_type(device: str, gpu_type: str) -> bool:
    """Return whether a GPU's name, as "NVIDIA A100-SXM4-80GB", has all words of a cluster's type, as "a100_80gb"."""
    name = "".join(re.findall(r"[a-z0-9]+", device.lower()))
    return all(word in name for word in re.findall(r"[a-z0-9]+", gpu_type.lower()))
