"""Measure two sides alternately, so that a drifting machine slows both equally."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Measurement:
    """Ours against a peer.

    Attributes:
        name: what was measured.
        against: the peer.
        ratio: ours over the peer's. For times, the median over pairs of calls. Below 1, ours is faster or smaller.
        limit: the largest acceptable ratio; None: it is only reported.
        ours: what was measured, in `unit`. For times, the median.
        peer: the same for the peer.
        unit: of `ours` and `peer`.
        detail: how it was run.
    """

    name: str
    against: str
    ratio: float
    limit: float | None
    ours: float
    peer: float
    unit: str = "ms"
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
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Call both alternately, once to warm up and then `rounds` times."""
    mine, theirs = interleave((ours, peer), rounds, clock)
    return measurement(name, mine, against, theirs, limit=limit, detail=detail)


def interleave(
    calls: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Call all alternately, once to warm up and then `rounds` times; return the seconds of each."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for kept, call in zip(times, calls, strict=True):
            start = clock()
            call()
            if turn:
                kept.append(clock() - start)
    return times


def measurement(
    name: str,
    ours: Sequence[float],
    against: str,
    peer: Sequence[float],
    *,
    limit: float | None,
    detail: Mapping[str, Any] | None = None,
) -> Measurement:
    """Return the seconds of interleaved calls as a measurement."""
    ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    mine, theirs = (round(1000 * statistics.median(some), 2) for some in (ours, peer))
    return Measurement(
        name, against, round(ratio, 3), limit, mine, theirs, detail={"rounds": len(ours), **(detail or {})}
    )


def repeat_within(name: str, limit_s: float, call: Callable[[], object], rounds: int = 5) -> Measurement:
    """Measure the median seconds of some calls against a limit."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return within(name, limit_s, seconds)


def within(name: str, limit_s: float, seconds: Sequence[float]) -> Measurement:
    """Compare the median of measured seconds with a limit, which takes the place of a peer."""
    taken = statistics.median(seconds)
    sides = round(1000 * taken, 1), round(1000 * limit_s, 1)
    return Measurement(name, f"{limit_s:g} s", round(taken / limit_s, 3), 1.0, *sides, detail={"rounds": len(seconds)})


def process(*command: str) -> Callable[[], None]:
    """Return a function that runs a command as a process, without its output."""

    def run() -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    return run


class InProcess:
    """Call a function in a process of its own, which waits between the calls.

    What a side sets for its process, such as how memory is allocated, does not reach the other side.

    Args:
        module: passes the function to `serve` when it is run as a program with `arguments`.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        self._wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def __call__(self) -> None:
        """Call the function once.

        Raises:
            RuntimeError: the process ended.
        """
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), b"\n")
        self._wait()

    def _wait(self) -> None:
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError(f"{self.process.args!r} ended with exit code {self.process.wait()}")


def serve(run: Callable[[], object], replies: int) -> None:
    """Call a function for each line from `InProcess`, and answer each on the file descriptor `replies`."""
    os.write(replies, b"\n")
    for _ in sys.stdin:
        run()
        os.write(replies, b"\n")
