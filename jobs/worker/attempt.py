"""One execution of a trial, recorded in ``attempts/<n>.json`` from start to end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from socket import gethostname
from typing import Any, TextIO

from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular
from dropbench.harness.predictions.store import FOLDER as PREDICTIONS
from dropbench.harness.runs.lease import Lease, SupersededError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.runs.stamps import stamped
from dropbench.harness.source import code_digest
from dropbench.jobs.worker import process_group, retry
from dropbench.jobs.worker.failure import LOST, Failure

HALF_WRITTEN = "checkpoint/.*", "attempts/.*", "lease/.*", f"{PREDICTIONS}/.*", ".environment.json.*", ".result.json.*"
"""Patterns of the half-written files of workers in a run directory; other files there have other writers."""


class Attempt:
    """The attempt that this process runs; the caller holds the directory's lock throughout."""

    def __init__(
        self,
        directory: RunDirectory,
        *,
        submission: str,
        executor: str,
        job_id: str | None,
        submitted_at: str | None = None,
        threads: int = 1,
    ) -> None:
        """Delete half-written files of killed writers, start the attempt and write its record.

        `job_id` is the executor's id of the job, `submitted_at` is ISO 8601, and `threads` are the CPU cores per
        process (0: all).
        """
        _delete(directory, *HALF_WRITTEN)
        self.directory, self.previous = directory, directory.attempts()
        names = [file.stem for file in (directory.path / "attempts").glob("*.json")]
        self.number = 1 + max((int(name) for name in names if name.isdigit()), default=0)
        _reset_peak_memory()
        self.initial_cpu_seconds, self.start = _cpu_seconds(), time.monotonic()
        self.record: dict[str, Any] = {
            "state": "running",
            "cause": None,
            "submission": submission,
            "executor": executor,
            "job_id": job_id,
            "host": gethostname(),
            "node": process_group.node_name(),
            "pid": os.getpid(),
            "waited_seconds": _waited(submitted_at, self.previous),
            # Of all processes of the job; a worker of another executor is alone, even inside of an allocation.
            "cpus": (threads or len(os.sched_getaffinity(0))) * (_number("SLURM_NTASKS") if executor == "slurm" else 1),
            "gpus": len(process_group.visible_devices())
            * (_number("SLURM_JOB_NUM_NODES") if executor == "slurm" else 1),
            "micro_batch_splits": retry.pieces(self.previous),
            "code": code_digest(),
            "started_at": utc_now_iso(),
            **dict.fromkeys(("ended_at", "device", "cpu_seconds", "gpu_seconds", "peak_memory_bytes", "steps_done")),
            **dict.fromkeys(("steps", "steps_per_second")),
            "message": None,
        }
        directory.write_attempt(self.number, self.record)

    def finish(
        self, state: str, cause: str | None = None, message: str | None = None, rate: float | None = None
    ) -> None:
        """Record the end of the attempt and the resources it used; on a full disk, overwrite the record in place.

        `rate`: measured steps per second, instead of those between the train events.
        """
        device, gpus, gpu_memory = _accelerator()
        progress = _progress(self.directory)
        done = checkpoint_step(self.directory), progress["batches_evaluated"]
        state, cause = retry.apply_limits(state, cause, done, self.previous)
        self.record |= {
            "state": state,
            "cause": cause,
            "message": message,
            "ended_at": utc_now_iso(),
            "device": device,
            "cpu_seconds": round(_cpu_seconds() - self.initial_cpu_seconds, 3),
            "gpu_seconds": round((time.monotonic() - self.start) * gpus, 3),
            "peak_memory_bytes": gpu_memory if gpus else _peak_memory(),
            **progress,
            **({} if rate is None else {"steps_per_second": rate}),
        }
        _rewrite(self.directory, self.number, self.record)

    def fail(self, failure: Failure) -> None:
        """Record the end by an error; the log gets all of its text."""
        with contextlib.suppress(OSError), open_log(self.directory) as log:
            log.write(failure.text + "\n")
        self.finish(failure.state, failure.cause, failure.message)


def _number(variable: str) -> int:
    """Return the value of a variable of SLURM; 1 if it is not set, or no number."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 1


def open_log(directory: RunDirectory) -> TextIO:
    """Open ``log.txt`` for appending; raises OSError for a pipe, which would block."""
    path = directory.path / "log.txt"
    if path.exists():
        open_regular(path).close()
    return open(path, "a", buffering=1, encoding="utf-8")


ExitCause = Callable[[dict[str, Any]], tuple[str, str] | None]
"""Returns the state and the cause of an attempt whose process died, None if it does not know them."""


def attribute_cause(directory: RunDirectory, exit_cause: ExitCause) -> bool:
    """Replace "lost" in the records of attempts by the true cause, which SLURM may report after the trial resumed.

    Return whether a cause was found.
    """
    attempts, found = directory.attempts(), False
    for position, attempt in enumerate(attempts):
        if attempt["state"] == "lost" and (end := exit_cause(attempt)) is not None:
            state, cause = retry.apply_limits(*end, retry.progress(attempt), attempts[:position])
            attempts[position] = {**attempt, "state": state, "cause": cause}
            _rewrite(directory, attempt["number"], attempts[position])
            found = True
    return found


def finalize_dead(directory: RunDirectory, exit_cause: ExitCause | None = None) -> None:
    """Record the end of an attempt whose process died without doing so; the caller holds the directory's lock.

    The attempt is "lost", so that the trial resumes from its last checkpoint, unless `exit_cause` knows the cause. See
    `dropbench.jobs.worker.retry` for the limits. The lease is taken, too: a process that is alive nevertheless writes
    nothing more.
    """
    attempts = directory.attempts()
    if not attempts or attempts[-1]["state"] != "running":
        return
    if (lease := Lease.take(directory.path)) is not None:  # otherwise a worker on another machine holds it
        with contextlib.suppress(SupersededError), lease, directory.held_by(lease):
            _finalize(directory, attempts[-1], attempts[:-1], exit_cause)


def _finalize(
    directory: RunDirectory, last: dict[str, Any], previous: list[dict[str, Any]], exit_cause: ExitCause | None
) -> None:
    _delete(directory, "attempts/.*")
    if directory.succeeded():
        end = {"state": "succeeded", **_progress(directory)}
    else:
        end = {**_progress(directory), "steps_done": checkpoint_step(directory)}
        state_and_cause = (exit_cause(last) if exit_cause else None) or ("lost", LOST)
        state, cause = retry.apply_limits(*state_and_cause, retry.progress(end), previous)
        end |= {"state": state, "cause": cause}
    files = [directory.path / "events.jsonl", directory.path / "log.txt", _attempt_file(directory, last["number"])]
    last_write = max(file.stat().st_mtime for file in files if file.exists())
    ended_at = datetime.fromtimestamp(last_write, UTC).isoformat(timespec="milliseconds")
    # A file's time is that of the kernel's last tick, some milliseconds ago.
    _rewrite(directory, last["number"], {**last, **end, "ended_at": max(ended_at, last.get("started_at") or "")})


def _waited(submitted_at: str | None, previous: list[dict[str, Any]]) -> float | None:
    """Return the seconds since the attempt could have started: since the submission, or the previous attempt's end."""
    times = [time for time in (submitted_at, previous[-1].get("ended_at") if previous else None) if time]
    waits = [(datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds() for time in times]
    return round(max(0.0, min(waits)), 3) if waits else None  # the login node's clock may be ahead


def _delete(directory: RunDirectory, *patterns: str) -> None:
    """Delete half-written files; the caller holds the lease, which excludes live writers."""
    for file in chain.from_iterable(map(directory.path.glob, patterns)):
        file.unlink(missing_ok=True)


def checkpoint_step(directory: RunDirectory) -> int:
    """Return the step from which a new attempt would resume, 0 without a checkpoint."""
    return max((int(file.stem[5:]) for file in (directory.path / "checkpoint").glob("step-[0-9]*[0-9].pt")), default=0)


def _rewrite(directory: RunDirectory, number: int, record: dict[str, Any]) -> None:
    try:
        directory.write_attempt(number, record)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # On a full disk only the file's own block is available. A reader that sees a half-written record takes the
        # attempt for absent and the trial for one to be run again, which loses nothing.
        record = stamped({**record, "number": number, "message": None}, directory.id)
        with contextlib.suppress(OSError), open(_attempt_file(directory, number), "rb+") as file:
            file.write(json.dumps(record).encode().ljust(os.fstat(file.fileno()).st_size))
            file.truncate()


def _attempt_file(directory: RunDirectory, number: int) -> Path:
    return directory.path / "attempts" / f"{number}.json"


def _progress(directory: RunDirectory) -> dict[str, Any]:
    """Return the steps done, the steps of the whole trial, and the steps per second since the last start.

    ``batches_evaluated`` counts those of an evaluation after the last checkpoint that the next attempt does not repeat.
    """
    events: list[dict[str, Any]] = []
    with contextlib.suppress(InputError):
        events = directory.events()
    started = max((number for number, event in enumerate(events) if event["event"] == "resume"), default=0)
    trained = [event for event in events[started:] if event["event"] == "train"]
    rate = None
    if trained and (seconds := trained[-1]["time"] - trained[0]["time"]) > 0:
        rate = (trained[-1]["step"] - trained[0]["step"]) / seconds or None
    step = checkpoint_step(directory)
    stored = (
        event["batches"] for event in reversed(events) if event["event"] == "evaluating" and event["step"] == step
    )
    return {
        "batches_evaluated": next(stored, 0),
        "steps_done": max((event.get("step", 0) for event in events), default=0),
        "steps": next((event["steps"] for event in reversed(events) if "steps" in event), None),
        "steps_per_second": rate,
    }


def _accelerator() -> tuple[str | None, int, int]:
    """Return the GPU or processor, the number of GPUs of this process, and the peak bytes allocated on the first GPU.

    The first is None if nothing was computed, as torch was not imported.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None, 0, 0
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        from dropbench.harness.training.environment import processor

        return processor(), 0, 0
    return torch.cuda.get_device_name(0), torch.cuda.device_count(), torch.cuda.max_memory_allocated(0)


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _reset_peak_memory() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def _peak_memory() -> int:
    """Return the peak resident memory since `_reset_peak_memory` in bytes; without /proc, of the whole process."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
