"""Worker slots and the dispatch lock: kernel file locks, which are released when their process ends, however it ends.

Below ``<runs>/.submitit/``: ``lock`` is held while jobs are dispatched or collected, so that two command lines never do
so at the same time. ``places/<submission>.<slot>.<host>`` is held (shared) by every process of one local worker: by the
command line while it starts the worker, by Submitit's controller, which inherits it, and by the worker itself. The lock
is held without a gap, no process id can be reused by another process, and nothing needs cleaning up after a SIGKILL.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from socket import gethostname

from dropbench.harness.errors import InputError

MIN_FREE_BYTES = 16 * 2**20
"""Free disk space that is required to start work: a small checkpoint and its predecessor."""

NOTICE_S = 10.0
"""Seconds after which a command says that it waits for another one."""

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def jobs_folder(runs: Path) -> Path:
    """Return the folder of Submitit's files and of the locks; no run directory has this name."""
    return runs / ".submitit"


@contextlib.contextmanager
def dispatch_lock(runs: Path, timeout: float = math.inf) -> Iterator[None]:
    """Wait for the lock on dispatching and collecting, and hold it.

    Raises:
        InputError: the folder is not writable, or another command has held the lock for `timeout` seconds.
    """
    try:
        _slots_folder(runs).mkdir(parents=True, exist_ok=True)
        file = open(jobs_folder(runs) / "lock", "ab")  # noqa: SIM115
    except OSError as error:
        raise not_writable(runs, error) from None
    with file:
        start = time.monotonic()
        notice = start + NOTICE_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            if time.monotonic() > notice:
                notice = math.inf
                print(f"waiting for another dropbench command, which holds {file.name}", file=sys.stderr)
            if time.monotonic() - start > timeout:
                raise InputError(f"{file.name}: held by another dropbench command, perhaps a stopped one: end it")
        yield


class WorkerSlot:
    """A held slot of a local worker, numbered from 0 on each machine. Close it once the worker has inherited it."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, _number(path)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def close(self) -> None:
        """Release the slot in this process; it is free once all its processes have done so."""
        os.close(self.fd)


def acquire(runs: Path, submission: str, count: int, max_workers: int) -> list[WorkerSlot]:
    """Acquire up to `count` slots while at most `max_workers` are held in all; the caller holds the dispatch lock."""
    held = {_number(path) for path in _slot_files(runs, host=gethostname()) if _is_held(path)}
    free = [number for number in range(count + len(held)) if number not in held]
    return [
        WorkerSlot(_slots_folder(runs) / f"{submission}.{number}.{gethostname()}")
        for number in free[: max(0, min(count, max_workers - len(held)))]
    ]


def count_workers(runs: Path) -> int:
    """Return the number of live workers on this machine, whichever process started them."""
    return sum(_is_held(path) for path in _slot_files(runs, host=gethostname()))


def is_alive(runs: Path, submission: str) -> bool:
    """Return whether any worker of a submission is alive or being started."""
    return any(_is_held(path) for path in _slot_files(runs, submission))


def remove_slots(runs: Path, submission: str) -> None:
    """Delete the free slot files of a submission that has ended; the caller holds the dispatch lock."""
    for path in _slot_files(runs, submission):
        if not _is_held(path):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def hold(path: Path | None) -> Iterator[bool]:
    """Hold a worker's slot; yield False if it was removed meanwhile. Without a slot (on a cluster) yield True."""
    if path is None:
        yield True
        return
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


@cache
def keep_from_forks(runs: Path) -> None:
    """Let no process that a trial forks hold this worker's locks: it may outlive the worker."""
    os.register_at_fork(after_in_child=partial(_release_locks, os.path.realpath(runs)))


def _release_locks(runs: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    with contextlib.suppress(FileNotFoundError):  # not Linux
        for descriptor in [*Path("/proc/self/fd").iterdir()]:
            with contextlib.suppress(OSError):
                file = descriptor.readlink()
                if file.is_relative_to(runs) and (file.name == "lock" or file.parent == _slots_folder(Path(runs))):
                    os.dup2(null, int(descriptor.name))  # were it closed, another file could get its number
    os.close(null)


def check_writable(runs: Path) -> None:
    """Check that results can be stored in `runs`; raise InputError if it is read-only, no folder, or on a full disk."""
    probe = jobs_folder(runs) / f"probe-{os.getpid()}"
    try:
        _slots_folder(runs).mkdir(parents=True, exist_ok=True)
        with open(probe, "wb") as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(runs).free
    except OSError as error:
        raise not_writable(runs, error) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    if free < MIN_FREE_BYTES:
        raise InputError(
            f"{runs}: {free / 2**20:.1f} MiB are free: expected at least {MIN_FREE_BYTES >> 20} for checkpoints; "
            "run `dropbench gc`"
        )


def not_writable(runs: Path, error: OSError) -> InputError:
    """Return the error for a runs folder that cannot be written."""
    reason = error.strerror or error
    return InputError(f"{runs}: {reason}: expected a writable folder with free space (set DROPBENCH_RUNS)")


def is_disk_error(error: BaseException, folder: Path) -> bool:
    """Return whether the disk (full, read-only) caused an error: then every other trial would fail, too."""
    if not isinstance(error, OSError):
        return False
    if error.errno in _DISK_ERRORS:
        return True
    with contextlib.suppress(OSError):  # some libraries drop the error number
        return error.errno is None and shutil.disk_usage(folder).free < 2**20
    return False


def _slots_folder(runs: Path) -> Path:
    return jobs_folder(runs) / "places"


def _slot_files(runs: Path, submission: str = "*", host: str = "*") -> list[Path]:
    return sorted(_slots_folder(runs).glob(f"{submission}.*.{host}"))


def _number(path: Path) -> int:
    return int(path.name.split(".")[1])


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:  # another user's file, or a disk that has become read-only: the worker may be alive
        return not isinstance(error, FileNotFoundError)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
