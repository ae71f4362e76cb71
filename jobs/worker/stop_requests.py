"""Stop requests to a running worker: signals, and marker files that a login node can write."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from dropbench.harness.runs.run_directory import RunDirectory

STOP_FILE = "stop"
"""A file of this name in a submission's folder asks its workers to write a checkpoint and exit."""

STARTED_SUFFIX = ".began"
"""A file ``<job id>.began`` in a submission's folder: the job has reached its worker."""

PREEMPTION_SIGNAL = signal.SIGUSR2
"""The signal by which Submitit announces a time limit or a preemption."""


class StopRequests:
    """Stop requests to this worker: signals, the stop file, a cancelled trial. As a context it handles the signals.

    After the context, in which the checkpoint is written, a signal is passed on: Submitit's own handler requeues the
    job. With `keyboard`, this process is a command line, which other signals end, too.

    Attributes:
        directory: the run directory of the current trial.
        looks: whether this process looks for the marker files; of those that train together, one is enough.
    """

    POLL_INTERVAL_S = 10.0
    """Seconds between two looks for both marker files: hundreds of workers share a file system. Signals do not wait."""
    LOCAL_POLL_INTERVAL_S = 0.5
    """The same for workers on the user's machine."""

    def __init__(self, folder: Path, *, local: bool = True, looks: bool = True, keyboard: bool = False) -> None:
        self.folder, self.looks, self.keyboard = folder, looks, keyboard
        self.interval = self.LOCAL_POLL_INTERVAL_S if local else self.POLL_INTERVAL_S
        self.directory: RunDirectory | None = None
        self.signal: int | None = None
        self.stopped = False
        self.cancelled: str | None = None
        self.next_poll = 0.0
        self.previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequests:
        for number in (signal.SIGTERM, signal.SIGINT, PREEMPTION_SIGNAL):
            self.previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)
        if kind is not None or self.signal is None:
            return
        if self.keyboard and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        handler = self.previous_handlers[self.signal]
        if callable(handler) and (self.keyboard or self.signal == PREEMPTION_SIGNAL):
            handler(self.signal, None)

    def watch(self, directory: RunDirectory) -> None:
        """Make this trial, which is not cancelled, the current one."""
        self.directory, self.cancelled = directory, None

    def __call__(self) -> bool:
        """Return whether the current trial should stop before its next step or batch."""
        if self.looks and time.monotonic() >= self.next_poll:
            self.next_poll = time.monotonic() + self.interval
            self.cancelled = self.directory.cancelled() if self.directory is not None else None
            self.should_stop()
        return self.stopped or self.cancelled is not None

    def should_stop(self) -> bool:
        """Return whether the worker should exit."""
        self.stopped = self.stopped or self.signal is not None or (self.folder / STOP_FILE).exists()
        return self.stopped

    def end(self) -> tuple[str, str]:
        """Return the state and the cause of an attempt that was stopped."""
        if self.cancelled is not None:
            return "cancelled", self.cancelled
        cause = f"stopped by {signal.Signals(self.signal).name}" if self.signal else "stopped by the user"
        return "preempted" if self.signal == PREEMPTION_SIGNAL else "interrupted", cause

    def _handle(self, number: int, frame: object) -> None:
        if number == signal.SIGINT and self.signal == number:
            raise KeyboardInterrupt  # the second Ctrl-C: exit without a checkpoint
        if self.signal != PREEMPTION_SIGNAL:  # clusters send SIGTERM together with it
            self.signal = number
        self.stopped = True
