"""Leases: the right to write into a run directory, across nodes where the kernel's file locks do not reach.

``<run directory>/lease/<n>`` belongs to the n-th worker that took the directory. The worker renews the file's time
every `HEARTBEAT_S` seconds and sets it to 0 when it ends. The highest number is the holder. A number is taken by
linking its file into place, which only one worker can do, on every file system. So a worker that was cut off sees on
its return that it is no longer the holder, and ends silently. Times are those of the clock that dates the files: the
clocks of the machines may differ.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from socket import gethostname

from dropbench.harness.errors import InputError
from dropbench.harness.files import read_json

HEARTBEAT_S = 15.0
"""Seconds between two heartbeats."""

LEASE_TIMEOUT_S = 90.0
"""Seconds without a heartbeat after which a worker on another machine counts as dead."""

CLOCK_PERIOD_S = 60.0
"""Seconds after which the clock that dates the files is read again."""


class SupersededError(Exception):
    """Another worker has taken the run directory because this one had sent no heartbeat for too long."""


@cache
def machine() -> str:
    """Return an id of this boot of this kernel, within which file locks work; host names may repeat."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return gethostname()


def now(folder: Path) -> float:
    """Return the time in seconds by the clock that dates the files in a folder.

    On a remote file system that is the server's. The clock of this machine may differ by any amount, and may be set.
    """
    return time.monotonic() + _clock_difference(folder, int(time.monotonic() / CLOCK_PERIOD_S))


@lru_cache(maxsize=16)
def _clock_difference(folder: Path, period: int) -> float:
    """Return the time of a file written now minus the monotonic clock; for a read-only folder this machine's time."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        os.utime(file.fileno())  # a remote file system answers with its own time
        return os.fstat(file.fileno()).st_mtime - time.monotonic()
    return time.time() - time.monotonic()


@dataclass(frozen=True)
class Holder:
    """The holder of a run directory: number of the lease, machine, and seconds since its last heartbeat."""

    number: int
    machine: str
    seconds_since_heartbeat: float

    @property
    def held_remotely(self) -> bool:
        """True if the holder is alive on another machine; on this machine the directory's lock decides."""
        return self.machine != machine() and self.seconds_since_heartbeat < LEASE_TIMEOUT_S


def holder(path: Path) -> Holder | None:
    """Return the current or last holder of a run directory; None if it never had one."""
    number = max(numbered_files(f"{path}/lease"), default=0)
    if not number:
        return None
    file = path / "lease" / str(number)
    try:
        seconds_since_heartbeat = now(path.parent) - file.lstat().st_mtime
        if file.is_file():
            with contextlib.suppress(InputError, LookupError, TypeError):
                return Holder(number, str(read_json(file)["machine"]), seconds_since_heartbeat)
    except FileNotFoundError:  # removed by a newer lease
        return holder(path)
    return Holder(number, "damaged", seconds_since_heartbeat)  # any machine may hold it


class Lease:
    """The right to write into a run directory, renewed by a thread of its own while the context lasts."""

    def __init__(self, path: Path, number: int) -> None:
        self.folder, self.number = path / "lease", number
        self.file = self.folder / str(number)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    @classmethod
    def take(cls, path: Path) -> Lease | None:
        """Become the holder, under the directory's lock, or return None.

        Raises:
            FileNotFoundError: the directory is gone.
            InputError: its folder of leases is damaged.
        """
        before = holder(path)
        if before is not None and before.held_remotely:
            return None
        lease = cls(path, 1 + (before.number if before else 0))
        try:
            lease.folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise InputError(f"{lease.folder}: expected a folder") from None
        draft = lease.folder / f".{gethostname()}-{os.getpid()}"
        try:
            draft.touch()
            with contextlib.suppress(OSError):  # on a full disk, an empty file holds the directory, too
                draft.write_text(json.dumps({"machine": machine(), "host": gethostname(), "pid": os.getpid()}))
            os.link(draft, lease.file)
        except FileExistsError:
            return None
        except FileNotFoundError:
            if not lease.folder.exists():
                raise
            return None  # the new holder, on another machine, took the draft for that of a killed process
        finally:
            draft.unlink(missing_ok=True)
        for number in numbered_files(str(lease.folder)):
            if number < lease.number - 1:
                with contextlib.suppress(OSError):  # a folder, or removed by another worker
                    (lease.folder / str(number)).unlink()
        return lease

    def held(self) -> bool:
        """Return whether this worker still holds the directory."""
        return max(numbered_files(str(self.folder)), default=0) == self.number

    def __enter__(self) -> Lease:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.thread.join()
        with contextlib.suppress(OSError):
            os.utime(self.file, (0, 0))

    def _beat(self) -> None:
        while not self.over.wait(HEARTBEAT_S):
            with contextlib.suppress(OSError):  # the disk may be away for a while
                os.utime(self.file)


def numbered_files(folder: str, suffix: str = "") -> list[int]:
    """Return the numbers of the files ``<n><suffix>``; raises InputError if something else has the folder's path."""
    try:
        with os.scandir(folder) as files:
            names = [file.name.removesuffix(suffix) for file in files if file.name.endswith(suffix)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
    return [int(name) for name in names if re.fullmatch("[1-9][0-9]{0,8}", name)]
