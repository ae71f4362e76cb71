"""The callable inside a job: it runs trials from a list, one after the other, and never opens the database."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from submitit import JobEnvironment
from submitit.core.utils import DelayedSubmission

from dropbench.harness.cli.streams import output_is_closed
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError, Interrupted
from dropbench.harness.runs.kept_weights import discard_weights
from dropbench.harness.runs.lease import Lease, SupersededError, holder
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.source import CodeChangedError, at_start, require_unchanged
from dropbench.harness.variables import LAUNCHER, hub_offline, without_variables
from dropbench.jobs.worker import retry, slots
from dropbench.jobs.worker.attempt import Attempt, finalize_dead, open_log
from dropbench.jobs.worker.forked import import_libraries, run_side_by_side, run_together
from dropbench.jobs.worker.longest_first import LongestFirst
from dropbench.jobs.worker.probe import Probe
from dropbench.jobs.worker.process_group import ProcessGroup, share_of_device, visible_devices
from dropbench.jobs.worker.stop_requests import STARTED_SUFFIX, StopRequests

_POLL_INTERVAL_S = 1.0


@dataclass(eq=False)
class Worker:
    """The callable that Submitit pickles. It holds paths and no state, so that it can be restarted at any time.

    Several workers may share a list of trials: each runs the next trial that is neither finished nor locked by another
    worker, in the order of `LongestFirst`.

    Attributes:
        directories: the run directories.
        payload: `Settings.to_payload`.
        submission, folder: the submission's id and folder.
        executor: the executor's name, for the attempts.
        slot_file: the file of its slot (`dropbench.jobs.worker.slots`), None if the executor limits the workers.
        submitted_at: when it was submitted, ISO 8601.
        terminal: leave output on the terminal and exceptions to the caller, for a debugger.
        trials_at_a_time: trials that this job runs side by side, in a process each, which share its cores and GPUs.
        processes: processes that a worker on this machine starts to train each trial together.
        kinds: for each run directory, the kind of trial, those of which take about equally long; empty: not known.
    """

    directories: list[str]
    payload: dict[str, Any]
    submission: str
    folder: str
    executor: str
    slot_file: str | None = None
    submitted_at: str | None = None
    terminal: bool = False
    trials_at_a_time: int = 1
    processes: int = 1
    kinds: list[str] = field(default_factory=list)

    def __call__(self) -> None:
        at_start()
        with slots.hold(Path(self.slot_file) if self.slot_file else None) as held:
            if held:
                self.run_trials()

    def checkpoint(self) -> DelayedSubmission:
        """Return what Submitit requeues: the same worker, as all state is in the run directories."""
        return DelayedSubmission(self)

    def run_trials(self) -> None:
        """Run every available trial of the list."""
        settings = Settings.from_payload(self.payload)
        job = _job_id()
        with hub_offline(), without_variables(*LAUNCHER):  # inherited, they would let training wait for other processes
            in_job = self.executor == "slurm" and job is not None
            if self.processes > 1:
                directories = [RunDirectory(Path(path)) for path in self.directories]
                run = partial(self.run_in_group, settings, job=job)
                run_together(self.processes, settings, self.submission, Path(self.folder), directories, run)
                return
            group = ProcessGroup.join(Path(self.folder), str(job), settings) if in_job else ProcessGroup()
            self.run_in_group(settings, group, job)

    def run_in_group(self, settings: Settings, group: ProcessGroup, job: str | None) -> None:
        """Run the list as the first of a group of processes, or follow it."""
        in_step = True
        local, looks = self.executor != "slurm", group.rank == 0
        with StopRequests(Path(self.folder), local=local, looks=looks, keyboard=self.terminal) as stop_requests:
            if group.rank:
                follow(settings, group, stop_requests)
            else:
                if self.executor == "slurm":
                    (Path(self.folder) / f"{job}{STARTED_SUFFIX}").touch()
                if self.trials_at_a_time > 1:
                    self.run_side_by_side(settings, stop_requests)
                elif in_step := self.run_list(settings, stop_requests, group):
                    group.broadcast(None)  # otherwise the followers are in another collective call
        if group.size > 1 and not in_step:
            sys.exit("the trial ended in one process, and the others wait for it")

    def run_list(self, settings: Settings, stop_requests: StopRequests, group: ProcessGroup) -> bool:
        """Run the available trials one after the other. Return False if one has to be the last."""
        order = LongestFirst([*map(Path, self.directories)], self.kinds)
        return all(
            stop_requests.should_stop()
            or self.run_if_available(RunDirectory(path), settings, stop_requests, group, order)
            for path in order
        )

    def run_side_by_side(self, settings: Settings, stop_requests: StopRequests) -> None:
        """Run the list in several processes, each of which runs the next available trial."""
        devices, count = visible_devices(settings.device), self.trials_at_a_time
        settings = replace(settings, gpu_share=share_of_device(count, len(devices)))
        if not devices:
            with contextlib.suppress(InputError):  # reported for its trial
                trials = [RunDirectory(Path(path)).trial() for path in self.directories[:count]]
                import_libraries({(trial.task, trial.model) for trial in trials})

        def run(number: int) -> None:
            if devices:
                os.environ["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
            self.run_list(settings, stop_requests, ProcessGroup())

        run_side_by_side(run, count, stop_requests)

    def run_if_available(
        self,
        directory: RunDirectory,
        settings: Settings,
        stop_requests: StopRequests,
        group: ProcessGroup,
        order: LongestFirst,
    ) -> bool:
        """Run a trial if it is available, and record its duration. Return False if the worker should stop."""
        try:
            _wait_for_remote_holder(directory, stop_requests)
            with directory.lock() as locked:
                proceed = True
                while locked and proceed and self.is_pending(directory):
                    start = time.monotonic()
                    proceed = self.run_attempt(directory, settings, stop_requests, group)
                    order.record(directory.path, time.monotonic() - start)
                    if not retry.can_retry_at_once(directory.attempts()):
                        break
                return proceed
        except SupersededError:
            return group.size == 1  # the followers train on
        except InputError as error:  # a damaged file, for which `collect` fails the trial
            print(error, file=sys.stderr, flush=True)
            return True
        except FileNotFoundError:
            if directory.path.is_dir():
                raise
            return group.size == 1  # the run directory was deleted, possibly during training

    def is_pending(self, directory: RunDirectory) -> bool:
        """Return whether this submission still has to run a trial; record the end of a dead attempt first."""
        finalize_dead(directory)
        if directory.succeeded() or directory.cancelled() is not None:
            return False
        last: dict[str, Any] = next(reversed(directory.attempts()), {})
        return last.get("submission") != self.submission or last["state"] not in ("failed", "cancelled")

    def run_attempt(
        self, directory: RunDirectory, settings: Settings, stop_requests: StopRequests, group: ProcessGroup
    ) -> bool:
        """Run one attempt and record its end. Return False if the next trial would fail, too: on a full disk."""
        slots.keep_from_forks(directory.path.parent)
        lease = Lease.take(directory.path)
        if lease is None:
            return True
        with lease, directory.held_by(lease):
            attempt = Attempt(
                directory,
                submission=self.submission,
                executor=self.executor,
                job_id=_job_id(),
                submitted_at=self.submitted_at,
                threads=settings.threads * self.processes,
            )
            settings = replace(settings, micro_batch_splits=attempt.record["micro_batch_splits"])
            stop_requests.watch(directory)
            probe = Probe(stop_requests)
            try:
                require_unchanged()
                with _redirect_output(directory, attempt.number) if not self.terminal else contextlib.nullcontext():
                    group.broadcast((str(directory.path), settings.micro_batch_splits))
                    with probe if settings.probe else contextlib.nullcontext(stop_requests) as stop:
                        result = _train(directory, settings, stop)
                directory.write_result(result)
            except SupersededError:
                raise
            except Interrupted:
                end = stop_requests.end() if probe.rate is None else ("interrupted", probe.cause)
                attempt.finish(*end, rate=probe.rate)
            except CodeChangedError as error:
                attempt.finish("interrupted", str(error))
                if self.terminal:
                    raise
                return False
            except BaseException as error:  # a plug-in may raise anything
                if isinstance(error, KeyboardInterrupt) and stop_requests.signal is not None:
                    attempt.finish("interrupted", "Ctrl-C, without a checkpoint")
                    raise
                if self.terminal and isinstance(error, BrokenPipeError) and output_is_closed():
                    attempt.finish("interrupted", "its output was closed, such as by `| head`")
                    raise
                attempt.fail(group.failure(error))
                if self.terminal and sys.stdin.isatty():
                    error.add_note(f"in trial {directory.id}")  # `dropbench.harness.cli.main.run` leaves its traceback
                    raise
                # The processes of a group may be out of step now.
                return group.size == 1 and not slots.is_disk_error(error, directory.path)
            else:
                attempt.finish("succeeded")
                _discard_training_states(directory, result)
        return True


def follow(settings: Settings, group: ProcessGroup, stop_requests: StopRequests) -> None:
    """Train what rank 0 trains, until it shuts down; report errors to it."""
    for path, pieces in group.receive():
        directory = RunDirectory(Path(path))  # only rank 0 writes to it
        stop_requests.watch(directory)
        try:
            with contextlib.suppress(Interrupted):
                _train(directory, replace(settings, micro_batch_splits=pieces), stop_requests)
        except BaseException as error:
            group.report(error)
            raise


def _wait_for_remote_holder(directory: RunDirectory, stop_requests: StopRequests) -> None:
    """If a worker on another machine holds the directory, wait until it renews its lease or is declared dead."""
    first = holder(directory.path)
    while first is not None and (latest := holder(directory.path)) is not None and latest.held_remotely:
        if latest.seconds_since_heartbeat < first.seconds_since_heartbeat or stop_requests.should_stop():
            return
        sleep(_POLL_INTERVAL_S)


def sleep(seconds: float) -> None:
    """Wait; a simulated cluster lets its other workers run instead."""
    time.sleep(seconds)


def _train(directory: RunDirectory, settings: Settings, stop: Callable[[], bool]) -> dict[str, Any]:
    from dropbench.harness.training.engine import run_trial

    return run_trial(directory, settings, stop)


def _discard_training_states(directory: RunDirectory, result: dict[str, Any]) -> None:
    from dropbench.harness.training import checkpoint

    checkpoint.discard(directory.path / "checkpoint", result["selected_step"])
    discard_weights(directory)


@contextlib.contextmanager
def _redirect_output(directory: RunDirectory, number: int) -> Iterator[None]:
    """Append the output of this process and its children to ``log.txt``."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = open_log(directory)
    saved = os.dup(1), os.dup(2)
    try:
        file.write(f"--- attempt {number}, {utc_now_iso()}\n")
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        # catch_warnings resets the registry of warnings shown, so that the next trial shows them again.
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file), warnings.catch_warnings():
            yield
    finally:
        with contextlib.suppress(OSError):  # a full disk has been reported already
            file.close()
        for fd, target in zip(saved, (1, 2), strict=True):
            os.dup2(fd, target)
            os.close(fd)


def _job_id() -> str | None:
    try:
        return JobEnvironment().job_id
    except RuntimeError:  # not in a job
        return None
