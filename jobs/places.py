"""Who is alive, and how many may be: answered by the kernel's file locks, which end with their process in any case.

Below ``<runs>/.submitit/``: ``lock`` is held while jobs are dispatched or collected, so that two command lines never do
it at once; ``places/<submission>.<slot>.<host>`` is held (shared) by every process of one local worker: by the command
line while it starts the worker, by Submitit's controller, which inherits it, and by the worker itself. There is no
moment between the three, no process id that could be another's by now, and nothing to tidy up after a SIGKILL.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname

from harness.errors import InputError

LEAST_FREE = 16 * 2**20
"""Bytes that must be free before anything is started: a small checkpoint and its predecessor."""

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def home(runs: Path) -> Path:
    """The folder of Submitit's files and of the locks; no run directory is ever called so."""
    return runs / ".submitit"


@contextlib.contextmanager
def keeper(runs: Path) -> Iterator[None]:
    """Be the one process that dispatches or collects in `runs`; waits while another one is.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        (home(runs) / "places").mkdir(parents=True, exist_ok=True)
        file = open(home(runs) / "lock", "ab")  # noqa: SIM115
    except OSError as error:
        raise unwritable(runs, error) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Place:
    """The right to be one of the local workers. Close it when the worker has inherited it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self.handle, fcntl.LOCK_SH)

    @property
    def slot(self) -> int:
        """Number among the workers of this machine, from 0."""
        return _slot(self.path)

    def close(self) -> None:
        """Let go; the place is free when every process of it has."""
        os.close(self.handle)


def take(runs: Path, submission: str, wanted: int, limit: int) -> list[Place]:
    """Take up to `wanted` places, as long as at most `limit` are taken by all; the caller is the `keeper`."""
    used = {_slot(path) for path in _all(runs, host=gethostname()) if _held(path)}
    free = [slot for slot in range(limit + len(used)) if slot not in used][: max(0, min(wanted, limit - len(used)))]
    return [Place(_folder(runs) / f"{submission}.{slot}.{gethostname()}") for slot in free]


def taken(runs: Path) -> int:
    """How many workers live on this machine, whoever started them."""
    return sum(_held(path) for path in _all(runs, host=gethostname()))


def alive(runs: Path, submission: str) -> bool:
    """Whether any worker of a submission lives, or is being started."""
    return any(_held(path) for path in _all(runs, submission))


def clear(runs: Path, submission: str) -> None:
    """Forget the places of a submission that has ended; the caller is the `keeper`."""
    for path in _all(runs, submission):
        if not _held(path):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def occupy(path: Path | None) -> Iterator[bool]:
    """Be the worker of a place; False if it was given away meanwhile. Without one (on a cluster): True."""
    if path is None:
        yield True
        return
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield os.fstat(handle).st_nlink > 0
    finally:
        os.close(handle)


def check_writable(runs: Path) -> None:
    """Make sure that work may be stored in `runs`.

    Raises:
        InputError: it is read-only, no folder, or its disk is full.
    """
    probe = home(runs) / f"probe-{os.getpid()}"
    try:
        (home(runs) / "places").mkdir(parents=True, exist_ok=True)
        with open(probe, "wb") as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(runs).free
    except OSError as error:
        raise unwritable(runs, error) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    if free < LEAST_FREE:
        raise InputError(
            f"{runs}: {free / 2**20:.1f} MiB are free: expected at least {LEAST_FREE >> 20} for checkpoints"
        )


def unwritable(runs: Path, error: OSError) -> InputError:
    """The one line for a runs folder that nothing can be written to."""
    said = error.strerror or error
    return InputError(f"{runs}: {said}: expected a folder that can be written, with free space (DROPBENCH_RUNS)")


def disk_trouble(error: BaseException, folder: Path) -> bool:
    """Whether an error is the disk's (full, read-only) and not the program's: every other trial would meet it too."""
    if not isinstance(error, OSError):
        return False
    if error.errno in _DISK:
        return True
    with contextlib.suppress(OSError):  # libraries hide the number
        return error.errno is None and shutil.disk_usage(folder).free < 2**20
    return False


def _folder(runs: Path) -> Path:
    return home(runs) / "places"


def _all(runs: Path, submission: str = "*", host: str = "*") -> list[Path]:
    return sorted(_folder(runs).glob(f"{submission}.*.{host}"))


def _slot(path: Path) -> int:
    return int(path.name.split(".")[1])


def _held(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:  # another user's, or a disk that is read-only by now: not known to be dead
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
