"""One execution of a trial, recorded in ``attempts/<n>.json`` from start to end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any, TextIO

from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular
from dropbench.harness.runs.lease import Lease, SupersededError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.runs.stamps import stamped
from dropbench.harness.source import code_digest
from dropbench.jobs.worker import process_group, retry

LOST = "worker died without reporting an error (killed, out of memory, or node down)"

_MESSAGE_LINES = 15


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
        """Start the attempt and write its record.

        `job_id` is the executor's id of the job, `submitted_at` is ISO 8601, and `threads` are the CPU cores per
        process (0: all).
        """
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
            "message": None,
        }
        directory.write_attempt(self.number, self.record)

    def finish(self, state: str, cause: str | None = None, message: str | None = None) -> None:
        """Record the end of the attempt and the resources it used; on a full disk, overwrite the record in place."""
        device, gpus, gpu_memory = _accelerator()
        state, cause = retry.apply_limits(state, cause, checkpoint_step(self.directory), self.previous)
        self.record |= {
            "state": state,
            "cause": cause,
            "message": message,
            "ended_at": utc_now_iso(),
            "device": device,
            "cpu_seconds": round(_cpu_seconds() - self.initial_cpu_seconds, 3),
            "gpu_seconds": round((time.monotonic() - self.start) * gpus, 3),
            "peak_memory_bytes": gpu_memory if gpus else _peak_memory(),
            "steps_done": _last_step(self.directory),
        }
        _rewrite(self.directory, self.number, self.record)

    def fail(self, error: BaseException) -> None:
        """Record the end by an exception: its type decides the state, its text is the cause, the log gets all of it."""
        is_input_error = isinstance(error, InputError)
        text = str(error) if is_input_error else "".join(traceback.format_exception(error)).strip()
        lines = [_encodable(text)] if is_input_error else _encodable(text).splitlines()
        with contextlib.suppress(OSError), open_log(self.directory) as log:
            log.write("\n".join(lines) + "\n")
        if is_input_error:
            self.finish("failed", lines[0])
        else:
            state = "out_of_memory" if is_out_of_memory(error) else "failed"
            self.finish(state, _one_line(error), "\n".join(lines[-_MESSAGE_LINES:]))


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


def attribute_cause(directory: RunDirectory, exit_cause: ExitCause) -> None:
    """Replace "lost" in the records of attempts by the true cause, which SLURM may report after the trial resumed."""
    attempts = directory.attempts()
    for position, attempt in enumerate(attempts):
        if attempt["state"] == "lost" and (end := exit_cause(attempt)) is not None:
            state, cause = retry.apply_limits(*end, attempt.get("steps_done"), attempts[:position])
            attempts[position] = {**attempt, "state": state, "cause": cause}
            _rewrite(directory, attempt["number"], attempts[position])


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
    remove_temp_files(directory.path / "attempts")
    if directory.succeeded():
        end = {"state": "succeeded", "steps_done": _last_step(directory)}
    else:
        step = checkpoint_step(directory)
        state_and_cause = (exit_cause(last) if exit_cause else None) or ("lost", LOST)
        state, cause = retry.apply_limits(*state_and_cause, step, previous)
        end = {"state": state, "cause": cause, "steps_done": step}
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


def remove_temp_files(folder: Path, pattern: str = ".*") -> None:
    """Delete the half-written files of killed writers; the caller holds the lease, which excludes live ones."""
    for file in folder.glob(pattern):
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


def _last_step(directory: RunDirectory) -> int:
    with contextlib.suppress(InputError):
        return max((event.get("step", 0) for event in directory.events()), default=0)
    return 0


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return _encodable(f"{error.strerror}: {error.filename}" if error.filename else error.strerror)
    try:
        text = " ".join(_encodable(str(error)).split()) or "no message"
    except Exception:  # a plug-in's error may fail at that
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text}"[:500]


def _encodable(text: str) -> str:
    """Escape what is no character, such as a byte of a file's name that is not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory ran out, of this machine or of a GPU."""
    # If torch raised the error, torch is loaded; it need not be imported here.
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def is_connection_lost(error: BaseException) -> bool:
    """Return whether torch reports that another process of the group has ended."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Connection closed by peer"))


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
