"""One execution of a trial, as ``attempts/<n>.json`` tells it, from its first word to its last."""

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
from typing import Any

from harness.errors import InputError
from harness.rundir import RunDirectory
from jobs import machine, retry

LOST = "its process ended without a word: killed, out of memory, or the machine went down"

_MESSAGE_LINES = 15


def now() -> str:
    """The time as it is kept: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Attempt:
    """The attempt that this process makes; the caller holds the directory's lock all the while."""

    def __init__(
        self,
        directory: RunDirectory,
        *,
        submission: str,
        executor: str,
        job_id: str | None,
        since: str | None = None,
        threads: int = 1,
    ) -> None:
        """Begin it.

        Args:
            directory: of the trial.
            submission: its id.
            executor: its name.
            job_id: what the executor calls the job.
            since: when it was submitted.
            threads: CPU cores of each process of it; 0: all.
        """
        self.directory, self.before = directory, directory.attempts()
        self.number = 1 + max((int(file.stem) for file in _files(directory)), default=0)
        _reset_peak_memory()
        self.cpu, self.clock = _cpu_seconds(), time.monotonic()
        self.record: dict[str, Any] = {
            "state": "running",
            "cause": None,
            "submission": submission,
            "executor": executor,
            "job_id": job_id,
            "host": gethostname(),
            "node": machine.node(),
            "pid": os.getpid(),
            "waited_seconds": _waited(since, self.before),
            "cpus": machine.cores(threads),
            "gpus": machine.gpus(),
            "pieces": retry.pieces(self.before),
            "started_at": now(),
            "ended_at": None,
            "device": None,
            "cpu_seconds": None,
            "gpu_seconds": None,
            "peak_memory_bytes": None,
            "steps_done": None,
            "message": None,
        }
        directory.write_attempt(self.number, self.record)

    def finish(self, state: str, cause: str | None = None, message: str | None = None) -> None:
        """Note how it ended, and what it used; on a full disk in the place of what stands there."""
        device, gpus, gpu_memory = _accelerator()
        state, cause = retry.limited(state, cause, checkpoint_step(self.directory), self.before)
        self.record |= {
            "state": state,
            "cause": cause,
            "message": message,
            "ended_at": now(),
            "device": device,
            "cpu_seconds": round(_cpu_seconds() - self.cpu, 3),
            "gpu_seconds": round((time.monotonic() - self.clock) * gpus, 3),
            "peak_memory_bytes": gpu_memory if gpus else _peak_memory(),
            "steps_done": _last_step(self.directory),
        }
        _rewrite(self.directory, self.number, self.record)

    def failed(self, error: BaseException) -> None:
        """The same for an exception: its kind decides the state, its text is the cause; the log has all of it."""
        wrong_input = isinstance(error, InputError)
        lines = [str(error)] if wrong_input else "".join(traceback.format_exception(error)).strip().splitlines()
        with contextlib.suppress(OSError), open(self.directory.path / "log.txt", "a", encoding="utf-8") as log:
            log.write("\n".join(lines) + "\n")
        if wrong_input:
            self.finish("failed", str(error))
        else:
            state = "out_of_memory" if _out_of_memory(error) else "failed"
            self.finish(state, _one_line(error), "\n".join(lines[-_MESSAGE_LINES:]))


Death = Callable[[dict[str, Any]], tuple[str, str] | None]
"""Tells the state of an attempt whose process died, and why, where something else than that process knows."""


def explain(directory: RunDirectory, death: Death) -> None:
    """Tell why attempts were lost, where that is known: the worker that goes on with a trial is quicker than SLURM."""
    attempts = directory.attempts()
    for position, attempt in enumerate(attempts):
        if attempt["state"] == "lost" and (told := death(attempt)) is not None:
            state, cause = retry.limited(*told, attempt.get("steps_done"), attempts[:position])
            attempts[position] = {**attempt, "state": state, "cause": cause}
            _rewrite(directory, attempt["number"], attempts[position])


def settle(directory: RunDirectory, death: Death | None = None) -> None:
    """Write the last word of an attempt whose process died without one; the caller holds the directory's lock.

    The attempt is "lost", so that the trial goes on from its last checkpoint, or what `death` knows better; see
    `jobs.retry` for what happens too often.

    Args:
        directory: of the trial.
        death: what may know more.
    """
    attempts = directory.attempts()
    if not attempts or attempts[-1]["state"] != "running":
        return
    last, before = attempts[-1], attempts[:-1]
    sweep(directory.path / "attempts")
    if directory.succeeded():
        ending = {"state": "succeeded", "steps_done": _last_step(directory)}
    else:
        step = checkpoint_step(directory)
        known = (death(last) if death else None) or ("lost", LOST)
        state, why = retry.limited(*known, step, before)
        ending = {"state": state, "cause": why, "steps_done": step}
    signs = [directory.path / "events.jsonl", directory.path / "log.txt", _file(directory, last["number"])]
    seen = max(file.stat().st_mtime for file in signs if file.exists())
    ended = datetime.fromtimestamp(seen, UTC).isoformat(timespec="milliseconds")
    # A file's time is that of the kernel's last tick, some milliseconds ago.
    _rewrite(directory, last["number"], {**last, **ending, "ended_at": max(ended, last["started_at"])})


def _waited(since: str | None, before: list[dict[str, Any]]) -> float | None:
    """Seconds since an attempt could have begun: since it was submitted, or since the last one ended."""
    times = [time for time in (since, before[-1].get("ended_at") if before else None) if time]
    if not times:
        return None
    waited = datetime.now(UTC) - max(map(datetime.fromisoformat, times))
    return round(max(0.0, waited.total_seconds()), 3)  # the login node's clock may be ahead


def sweep(folder: Path) -> None:
    """Delete what killed writers left half-written; the caller holds the locks that keep living ones away."""
    for file in folder.glob(".*"):
        file.unlink(missing_ok=True)


def checkpoint_step(directory: RunDirectory) -> int:
    """The step that a new attempt would go on from, 0 where there is no checkpoint."""
    return max((int(file.stem[5:]) for file in (directory.path / "checkpoint").glob("step-*.pt")), default=0)


def _rewrite(directory: RunDirectory, number: int, record: dict[str, Any]) -> None:
    try:
        directory.write_attempt(number, record)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # The block that the file has already is all that a full disk has to give. A reader that meets half of this
        # takes the attempt for absent, and the trial for one to be run again: nothing is lost by it.
        record = {**record, "number": number, "message": None}
        with contextlib.suppress(OSError), open(_file(directory, number), "rb+") as file:
            file.write(json.dumps(record).encode().ljust(os.fstat(file.fileno()).st_size))
            file.truncate()


def _file(directory: RunDirectory, number: int) -> Path:
    return directory.path / "attempts" / f"{number}.json"


def _files(directory: RunDirectory) -> list[Path]:
    return [file for file in (directory.path / "attempts").glob("*.json") if file.stem.isdigit()]


def _last_step(directory: RunDirectory) -> int:
    return max((event.get("step", 0) for event in directory.events()), default=0)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {text}"[:500]


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    # torch is not imported for this: an error of its kind comes from where it is.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _accelerator() -> tuple[str, int, int]:
    """Device, number of GPUs of this process, peak bytes on the first one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return "cpu", 0, 0
    return torch.cuda.get_device_name(0), torch.cuda.device_count(), torch.cuda.max_memory_allocated(0)


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in usage)


def _reset_peak_memory() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def _peak_memory() -> int:
    """Largest resident memory since `_reset_peak_memory`; where the kernel does not tell, of the whole process."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
