"""What others want of a worker while it is at a trial: by signals, and by files that a login node can write."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from harness.rundir import RunDirectory

STOP = "stop"
"""A file of this name in a submission's folder asks its workers to write a checkpoint and end."""

PREEMPTED = signal.SIGUSR2
"""What Submitit announces a time limit or a preemption with."""


class Wishes:
    """What others want of this worker: signals, the stop file, a cancelled trial. As a context, it takes the signals.

    Attributes:
        directory: the run directory that is worked at.
    """

    PATIENCE = 0.5
    """Seconds between two looks for the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory: RunDirectory | None = None
        self.signal: int | None = None
        self.stopped = False
        self.cancelled: str | None = None
        self.looked = -self.PATIENCE
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Wishes:
        for number in (signal.SIGTERM, signal.SIGINT, PREEMPTED):
            self.before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def begin(self, directory: RunDirectory) -> None:
        """From now on this is the trial that is worked at."""
        self.directory, self.cancelled, self.looked = directory, None, -self.PATIENCE

    def __call__(self) -> bool:
        """Whether the trial is to stop at its next step."""
        if time.monotonic() - self.looked >= self.PATIENCE:
            self.looked = time.monotonic()
            self.cancelled = self.directory.cancelled() if self.directory is not None else None
            self.to_stop()
        return self.stopped or self.cancelled is not None

    def to_stop(self) -> bool:
        """Whether the worker is to end."""
        self.stopped = self.stopped or self.signal is not None or (self.folder / STOP).exists()
        return self.stopped

    def state(self) -> str:
        """The state of an attempt that stopped by wish."""
        if self.cancelled is not None:
            return "cancelled"
        return "preempted" if self.signal == PREEMPTED else "interrupted"

    def cause(self) -> str:
        """Why, in a few words."""
        if self.cancelled is not None:
            return self.cancelled
        return f"stopped by {signal.Signals(self.signal).name}" if self.signal else "stopped by the user"

    def pass_on(self, keyboard: bool) -> None:
        """Now that the checkpoint is written, let Submitit do what it does at its signal: queue the job again."""
        if keyboard and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        handler = self.before.get(PREEMPTED)
        if self.signal == PREEMPTED and callable(handler):
            handler(PREEMPTED, None)

    def _take(self, number: int, frame: object) -> None:
        if number == signal.SIGINT and self.signal == number:
            raise KeyboardInterrupt  # twice: without a checkpoint
        if self.signal != PREEMPTED:  # clusters send SIGTERM along with it
            self.signal = number
        self.stopped = True
