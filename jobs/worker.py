"""What runs inside a job: trials from a list, one after the other. The database is never opened here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings
from jobs import places
from jobs.attempts import Attempt, now, settle, sweep

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

STOP = "stop"
"""A file of this name in a submission's folder asks its workers to write a checkpoint and end."""

BEGAN = ".began"
"""A file of this name behind a job's id, in a submission's folder: the job came as far as its worker."""

CANCELLED = "cancelled"
"""A file of this name in a run directory keeps workers from it, and stops the one that is at it."""

PREEMPTED = signal.SIGUSR2
"""What Submitit announces a time limit or a preemption with."""

_ENDED = ("failed", "out_of_memory", "cancelled")


class Worker:
    """The callable that Submitit pickles: it holds paths and no state, so that it may start anew at any time.

    Several workers may be given the same trials: each takes the next one that is neither finished nor held by another,
    which shares the work without anybody who shares it out.

    Args:
        directories: the run directories, in the order of work.
        payload: `Settings.to_payload`.
        submission: id of the submission.
        folder: the submission's folder.
        executor: its name, for the attempts.
        place: the file of its place (`jobs.places`), None where something else counts the workers.
        terminal: leave output on the terminal and exceptions to the caller, for a debugger.
    """

    def __init__(
        self,
        directories: list[str],
        payload: dict[str, Any],
        *,
        submission: str,
        folder: str,
        executor: str,
        place: str | None = None,
        terminal: bool = False,
    ) -> None:
        self.directories, self.payload, self.submission = directories, payload, submission
        self.folder, self.executor, self.place, self.terminal = folder, executor, place, terminal

    def __call__(self) -> None:
        with places.occupy(Path(self.place) if self.place else None) as mine:
            if mine:
                self.work()

    def checkpoint(self) -> DelayedSubmission:
        """What Submitit queues instead when the job has to go: the same again, all state is in the run directories."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self)

    def work(self) -> None:
        """Every trial of the list that is to be had."""
        settings = Settings.from_payload(self.payload)
        if self.executor == "slurm":
            (Path(self.folder) / f"{_job_id()}{BEGAN}").touch()
        with Wishes(Path(self.folder)) as wishes:
            for path in self.directories:
                if wishes.to_stop():
                    break
                if not self.turn_to(RunDirectory(Path(path)), settings, wishes):
                    break
        wishes.pass_on(keyboard=self.terminal)

    def turn_to(self, directory: RunDirectory, settings: Settings, wishes: Wishes) -> bool:
        """Run a trial if it is to be had; False where there is no use in going on with the next one."""
        try:
            with directory.lock() as mine:
                return not mine or not self.is_open(directory) or self.run(directory, settings, wishes)
        except FileNotFoundError:
            if directory.path.is_dir():
                raise
            return True  # deleted, perhaps under our hands

    def is_open(self, directory: RunDirectory) -> bool:
        """Whether a trial is still to be run by this submission; a predecessor's death is noted on the way."""
        settle(directory)
        if (directory.path / "result.json").exists() or (directory.path / CANCELLED).exists():
            return False
        last = next(reversed(directory.attempts()), None)
        return last is None or last.get("submission") != self.submission or last["state"] not in _ENDED

    def run(self, directory: RunDirectory, settings: Settings, wishes: Wishes) -> bool:
        """One attempt at one trial, whatever becomes of it; False where the next would meet the same: a full disk."""
        for folder in ("checkpoint", "attempts"):
            sweep(directory.path / folder)
        attempt = Attempt(directory, submission=self.submission, executor=self.executor, job_id=_job_id())
        wishes.begin(directory)
        try:
            with _log(directory, attempt.number) if not self.terminal else contextlib.nullcontext():
                result = _train(directory, settings, wishes)
            directory.write_result(result)
        except _interrupted():
            attempt.finish(wishes.state(), wishes.cause())
        except (Exception, SystemExit) as error:
            attempt.failed(error)
            if self.terminal and sys.stdin.isatty():
                raise
            return not places.disk_trouble(error, directory.path)
        except BaseException:
            attempt.finish("interrupted", "Ctrl-C, without a checkpoint")
            raise
        else:
            attempt.finish("succeeded")
            _discard_training_states(directory)
        return True


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
        self.stopped = self.cancelled = False
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
        self.directory, self.cancelled, self.looked = directory, False, -self.PATIENCE

    def __call__(self) -> bool:
        """Whether the trial is to stop at its next step."""
        if time.monotonic() - self.looked >= self.PATIENCE:
            self.looked = time.monotonic()
            self.cancelled = self.directory is not None and (self.directory.path / CANCELLED).exists()
            self.to_stop()
        return self.stopped or self.cancelled

    def to_stop(self) -> bool:
        """Whether the worker is to end."""
        self.stopped = self.stopped or self.signal is not None or (self.folder / STOP).exists()
        return self.stopped

    def state(self) -> str:
        """The state of an attempt that stopped by wish."""
        if self.cancelled:
            return "cancelled"
        return "preempted" if self.signal == PREEMPTED else "interrupted"

    def cause(self) -> str:
        """Why, in a few words."""
        if self.cancelled:
            return "cancelled by the user"
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


def _train(directory: RunDirectory, settings: Settings, stop: Callable[[], bool]) -> dict[str, Any]:
    from harness.plugins import load_all

    load_all(settings)
    trial = directory.trial()
    given = {hashlib.sha256(file.read_bytes()).hexdigest() for file in settings.plugins}
    for name, digest in trial.plugins.items():
        if digest not in given:
            raise InputError(f"plug-in {name}: is not given, or has changed since the trial was asked for")
    from harness.engine import run_trial

    return run_trial(trial, directory, settings, stop)


def _interrupted() -> tuple[type[Exception], ...]:
    """The engine's exception; none where the engine could not even be loaded."""
    engine = sys.modules.get("harness.engine")
    return (engine.Interrupted,) if engine else ()


def _discard_training_states(directory: RunDirectory) -> None:
    from harness import checkpoint

    checkpoint.discard(directory.path / "checkpoint")


@contextlib.contextmanager
def _log(directory: RunDirectory, number: int) -> Iterator[None]:
    """Everything that this process and its children print goes to ``log.txt``."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = open(directory.path / "log.txt", "a", buffering=1, encoding="utf-8")  # noqa: SIM115
    kept = os.dup(1), os.dup(2)
    try:
        file.write(f"--- attempt {number}, {now()}\n")
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        # On leaving catch_warnings, each warning may be shown again, by the next trial.
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file), warnings.catch_warnings():
            yield
    finally:
        with contextlib.suppress(OSError):  # what a full disk did not take has been told already
            file.close()
        for handle, target in zip(kept, (1, 2), strict=True):
            os.dup2(handle, target)
            os.close(handle)


def _job_id() -> str | None:
    from submitit import JobEnvironment

    try:
        return JobEnvironment().job_id
    except RuntimeError:  # not in a job
        return None
