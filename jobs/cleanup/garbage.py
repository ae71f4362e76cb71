"""The deletable files of run directories and submission folders, in an order that is safe to interrupt."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.harness.predictions.store import FOLDER as PREDICTIONS
from dropbench.harness.runs.kept_weights import keeps_weights
from dropbench.harness.runs.lease import now
from dropbench.harness.runs.run_directory import CANCELLED, RunDirectory
from dropbench.harness.trials.trial import TrialState
from dropbench.jobs.queue.reconcile import determine_state
from dropbench.jobs.worker.stop_requests import STOP_FILE

DAY = 86400.0
"""Seconds. Also the minimum age of a half-written file if no lock proves that its writer is dead."""

KINDS = {
    "half-written": "half-written files of killed processes",
    "states": "training states of trials that succeeded",
    "weights": "trained weights of trials that succeeded",
    "checkpoints": "checkpoints of failed, cancelled and skipped trials",
    "jobs": "files of submissions that have ended",
}
"""Kinds of garbage, with their descriptions in the command's output."""

Garbage = tuple[str, Path]
"""A kind and a file."""


@dataclass(frozen=True)
class RetentionPolicy:
    """The files to keep.

    Attributes:
        before: seconds since 1970; files modified later are kept.
        delete_weights: whether the weights of trials that succeeded may be deleted.
        initial_weights: real paths of the initial weights of trials, which are always kept.
    """

    before: float
    delete_weights: bool = False
    initial_weights: frozenset[str] = frozenset()

    def all_old(self, files: Iterable[Path]) -> bool:
        """Return whether all files are old enough to be deleted."""
        return all(_lstat(file).st_mtime < self.before for file in files)

    def deletable(self, files: Iterable[Path]) -> Iterator[Path]:
        """Yield the files that are not the initial weights of a trial."""
        for file in files:
            real = Path(os.path.realpath(file))
            if self.initial_weights.isdisjoint(map(str, (real, *real.parents))):
                yield file


def of_trial(directory: RunDirectory, state: TrialState, policy: RetentionPolicy) -> Iterator[Garbage]:
    """Yield the garbage of a run directory; results, predictions, attempts, events, logs and analyses are always kept.

    Raises:
        OSError, InputError: its files cannot be read, or are damaged.
    """
    attempts = directory.attempts()
    done = directory.succeeded()
    if state in ("submitted", "running") or (not done and attempts and attempts[-1]["state"] == "running"):
        return  # the attempt may be another database's
    checkpoints = directory.path / "checkpoint"
    folders = (directory.path, checkpoints, *(directory.path / name for name in ("attempts", "lease", PREDICTIONS)))
    for folder in folders:
        yield from (("half-written", file) for file in _files(folder, ".*"))
    # An analysis holds no lock.
    yield from (
        ("half-written", file) for file in _files(directory.analyses, ".*", before=now(directory.path.parent) - DAY)
    )
    # Weights are deleted after training states, so that a worker can resume from any training state that is left.
    states = [file for pattern in ("step-*.pt", "part-*.pt", "evaluation.pt") for file in _files(checkpoints, pattern)]
    weights = _files(checkpoints, "weights-*.pt")
    if done:
        yield from (("states", file) for file in policy.deletable(states))
        if weights and (policy.delete_weights or not keeps_weights(directory)):
            yield from (("weights", file) for file in policy.deletable(weights))
    elif state in ("failed", "cancelled", "skipped"):
        records = [*_files(directory.path / "attempts", "*.json"), *_files(directory.path, CANCELLED)]
        if policy.all_old([*states, *weights, *records]):
            yield from (("checkpoints", file) for file in policy.deletable([*states, *weights]))


def state_from_files(directory: RunDirectory) -> TrialState:
    """Return a trial's state from its unlocked directory alone; "failed" if its ``trial.json`` is damaged."""
    try:
        directory.trial()
        return determine_state(directory, None).state
    except InputError:
        return "failed"


def of_submission(folder: Path, policy: RetentionPolicy, *, in_database: bool) -> Iterator[Garbage]:
    """Yield the garbage of a submission that has ended: pickles at once, other files when they are old.

    If the submission is not in the database, all files must be old. The stop file, which stops a job that starts
    nevertheless, comes last.
    """
    files = sorted(_files(folder, "*"), key=lambda file: (file.suffix != ".pkl", file.name == STOP_FILE))
    old = policy.all_old(files)
    yield from (("jobs", file) for file in files if old or (in_database and file.suffix == ".pkl"))


def half_written(folder: Path, pattern: str) -> Iterator[Garbage]:
    """Yield the files of this pattern in a folder that holds no locks: they must be a day old."""
    yield from (("half-written", file) for file in _files(folder, pattern, before=now(folder) - DAY))


def _files(folder: Path, pattern: str, *, before: float = math.inf) -> list[Path]:
    """Return the regular files modified before a time, sorted by name."""
    files = [(file, _lstat(file)) for file in folder.glob(pattern)]
    return sorted(file for file, status in files if stat.S_ISREG(status.st_mode) and status.st_mtime < before)


def _lstat(file: Path) -> os.stat_result:
    try:
        return file.lstat()
    except FileNotFoundError:  # deleted since it was listed
        return os.stat_result([0] * 10)
