"""Measuring two things in turns, so that a drifting machine slows both alike."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """Ours against a peer.

    Attributes:
        name: what was measured.
        against: the peer.
        ratio: median of ours over the peer's, pair by pair; below 1 ours is faster.
        limit: the ratio that it is judged by; None where there is none.
        detail: medians in milliseconds, and what was run.
    """

    name: str
    against: str
    ratio: float
    limit: float | None
    detail: dict[str, Any] = field(default_factory=dict)


def compare(
    name: str,
    ours: Callable[[], object],
    against: str,
    peer: Callable[[], object],
    *,
    limit: float | None,
    rounds: int,
    detail: Mapping[str, Any] | None = None,
) -> Measurement:
    """Call both in turns, once to warm up and then `rounds` times."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        for kept, call in zip(times, (ours, peer), strict=True):
            start = time.perf_counter()
            call()
            if turn:
                kept.append(time.perf_counter() - start)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    medians = {"ours_ms": _milliseconds(times[0]), "peer_ms": _milliseconds(times[1]), "rounds": rounds}
    return Measurement(name, against, round(ratio, 3), limit, {**medians, **(detail or {})})


def process(*command: str) -> Callable[[], None]:
    """A whole process, its output thrown away."""

    def run() -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    return run


def _milliseconds(times: list[float]) -> float:
    return round(1000 * statistics.median(times), 2)
