"""What may be deleted of a run directory, and of a submission's folder, in an order in which part of it may, too."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError
from harness.rundir import CANCELLED, RunDirectory
from harness.trial import TrialState
from jobs.collect import judge
from jobs.wishes import STOP

DAY = 86400.0
"""Seconds. Also how old a half-written file must be where no lock says that its writer is dead."""

KINDS = {
    "half-written": "half-written files of killed processes",
    "states": "training states of trials that succeeded",
    "weights": "selected weights of trials that succeeded",
    "checkpoints": "checkpoints of failed, cancelled and skipped trials",
    "jobs": "files of submissions that have ended",
}
"""What may go, in the words of the command line."""

Rubbish = tuple[str, Path]
"""The kind, and the file."""


@dataclass(frozen=True)
class Limits:
    """How far it may go.

    Attributes:
        before: seconds since 1970; what was written to later may be of use.
        weights: whether those of trials that succeeded may go.
        initial: real paths of what trials begin with: never.
    """

    before: float
    weights: bool = False
    initial: frozenset[str] = frozenset()

    def old(self, files: Iterable[Path]) -> bool:
        """Whether nothing was written to any of some files lately."""
        return all(_time(file) < self.before for file in files)

    def expendable(self, files: Iterable[Path]) -> Iterator[Path]:
        """Those that no trial begins with."""
        for file in files:
            real = Path(os.path.realpath(file))
            if self.initial.isdisjoint(map(str, (real, *real.parents))):
                yield file


def of_trial(directory: RunDirectory, state: TrialState, limits: Limits) -> Iterator[Rubbish]:
    """What a run directory may lose: never a result, an attempt, an event, the log, or an analysis.

    Args:
        directory: the run directory.
        state: of its trial.
        limits: how old it must be.

    Raises:
        OSError, ValueError, LookupError, TypeError: its files cannot be read, or are damaged.
    """
    attempts = directory.attempts()
    done = directory.succeeded()
    if state in ("submitted", "running") or (not done and attempts and attempts[-1]["state"] == "running"):
        return  # also where that is another database's
    checkpoints = directory.path / "checkpoint"
    for folder in (directory.path, checkpoints, directory.path / "attempts"):
        yield from (("half-written", file) for file in _files(folder, ".*"))
    # Who analyzes takes no lock.
    yield from (("half-written", file) for file in _stale(directory.analyses, ".*"))
    # As long as the newest state is there, so are its weights: a worker may go on from what is left.
    states = [*_files(checkpoints, "step-*.pt"), *_files(checkpoints, "part-*.pt")]
    weights = _files(checkpoints, "weights-*.pt")
    if done:
        yield from (("states", file) for file in limits.expendable(states))
        if limits.weights:
            yield from (("weights", file) for file in limits.expendable(weights))
    elif state in ("failed", "cancelled", "skipped"):
        signs = [*_files(directory.path / "attempts", "*.json"), *_files(directory.path, CANCELLED)]
        if limits.old([*states, *weights, *signs]):
            yield from (("checkpoints", file) for file in limits.expendable([*states, *weights]))


def own_state(directory: RunDirectory) -> TrialState:
    """The state of a trial that the database does not know, by its files; where that is none, nothing ever goes on.

    The caller does not hold the directory's lock.
    """
    try:
        directory.trial()
    except InputError:
        return "failed"
    return judge(directory, None).state


def of_submission(folder: Path, limits: Limits, *, known: bool) -> Iterator[Rubbish]:
    """What a submission that has ended may lose: what is pickled at once, the rest when it is old.

    Last goes the file that stops a job of it that begins after all.

    Args:
        folder: the submission's.
        limits: how old it must be.
        known: whether the database knows it; otherwise all must be old.
    """
    files = sorted(_files(folder, "*"), key=lambda file: (file.suffix != ".pkl", file.name == STOP))
    old = limits.old(files)
    yield from (("jobs", file) for file in files if old or (known and file.suffix == ".pkl"))


def of_home(home: Path) -> Iterator[Rubbish]:
    """What killed command lines left beside the submissions' folders."""
    yield from (("half-written", file) for file in _stale(home, "probe-*"))


def _stale(folder: Path, pattern: str) -> list[Path]:
    return [file for file in _files(folder, pattern) if _time(file) < time.time() - DAY]


def _files(folder: Path, pattern: str) -> list[Path]:
    """Files, and no folders or links, in the order of their names."""
    return sorted(file for file in folder.glob(pattern) if stat.S_ISREG(_status(file).st_mode))


def _time(file: Path) -> float:
    return _status(file).st_mtime


def _status(file: Path) -> os.stat_result:
    try:
        return file.lstat()
    except FileNotFoundError:  # gone since it was listed
        return os.stat_result([0] * 10)
