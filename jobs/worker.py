"""What runs inside a job: trials from a list, one after the other. The database is never opened here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.lease import Lease, SupersededError, holder
from harness.rundir import RunDirectory
from harness.settings import Settings
from jobs import places, retry
from jobs.attempts import Attempt, now, settle, sweep
from jobs.team import Team
from jobs.wishes import Wishes

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

BEGAN = ".began"
"""A file of this name behind a job's id, in a submission's folder: the job came as far as its worker."""

_ENDED = ("failed", "cancelled")
_PAUSE = 1.0


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
        since: when it was submitted, ISO 8601.
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
        since: str | None = None,
        terminal: bool = False,
    ) -> None:
        self.directories, self.payload, self.submission = directories, payload, submission
        self.folder, self.executor, self.place, self.since, self.terminal = folder, executor, place, since, terminal

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
        job = _job_id()
        team = Team()
        if self.executor == "slurm" and job is not None:
            team = Team.join(Path(self.folder), job, settings)
        with Wishes(Path(self.folder)) as wishes:
            if team.rank:
                for path, pieces in team.hear():
                    follow(RunDirectory(Path(path)), replace(settings, pieces=pieces), wishes)
            else:
                if self.executor == "slurm":
                    (Path(self.folder) / f"{job}{BEGAN}").touch()
                going_on = True
                for path in self.directories:
                    if wishes.to_stop():
                        break
                    if not (going_on := self.turn_to(RunDirectory(Path(path)), settings, wishes, team)):
                        break
                if going_on:  # else the others wait for something else by now, and end with this process
                    team.dismiss()
        wishes.pass_on(keyboard=self.terminal)

    def turn_to(self, directory: RunDirectory, settings: Settings, wishes: Wishes, team: Team) -> bool:
        """Run a trial if it is to be had; False where there is no use in going on with the next one."""
        try:
            _wait_for_the_dead(directory, wishes)
            with directory.lock() as mine:
                going_on = True
                while mine and going_on and self.is_open(directory):
                    going_on = self.run(directory, settings, wishes, team)
                    if not retry.at_once(directory.attempts()):
                        break
                return going_on
        except SupersededError:
            return True
        except FileNotFoundError:
            if directory.path.is_dir():
                raise
            return True  # deleted, perhaps under our hands

    def is_open(self, directory: RunDirectory) -> bool:
        """Whether a trial is still to be run by this submission; a predecessor's death is noted on the way."""
        settle(directory)
        if directory.succeeded() or directory.cancelled() is not None:
            return False
        last = next(reversed(directory.attempts()), None)
        return last is None or last.get("submission") != self.submission or last["state"] not in _ENDED

    def run(self, directory: RunDirectory, settings: Settings, wishes: Wishes, team: Team) -> bool:
        """One attempt at one trial, whatever becomes of it; False where the next would meet the same: a full disk."""
        lease = Lease.take(directory.path)
        if lease is None:
            return True
        for folder in ("checkpoint", "attempts"):
            sweep(directory.path / folder)
        with lease, directory.held_by(lease):
            attempt = Attempt(
                directory,
                submission=self.submission,
                executor=self.executor,
                job_id=_job_id(),
                since=self.since,
                threads=settings.threads,
            )
            settings = replace(settings, pieces=attempt.record["pieces"])
            wishes.begin(directory)
            try:
                with _log(directory, attempt.number) if not self.terminal else contextlib.nullcontext():
                    team.tell(str(directory.path), settings.pieces)
                    result = _train(directory, settings, wishes)
                directory.write_result(result)
            except SupersededError:
                raise
            except _interrupted():
                attempt.finish(wishes.state(), wishes.cause())
            except (Exception, SystemExit) as error:
                attempt.failed(error)
                if self.terminal and sys.stdin.isatty():
                    raise
                # Together they may be at different places now.
                return team.size == 1 and not places.disk_trouble(error, directory.path)
            except BaseException:
                attempt.finish("interrupted", "Ctrl-C, without a checkpoint")
                raise
            else:
                attempt.finish("succeeded")
                _discard_training_states(directory)
        return True


def follow(directory: RunDirectory, settings: Settings, wishes: Wishes) -> None:
    """Train along with the first process of a job, which alone writes into the run directory."""
    wishes.begin(directory)
    try:
        _train(directory, settings, wishes)
    except _interrupted():
        return


def _wait_for_the_dead(directory: RunDirectory, wishes: Wishes) -> None:
    """Where a worker elsewhere has the directory, wait until it gives another sign of life, or is taken for dead."""
    if (first := holder(directory.path)) is None:
        return
    while (now := holder(directory.path)) is not None and now.elsewhere and now.silent >= first.silent:
        if wishes.to_stop():
            return
        pause(_PAUSE)


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


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
