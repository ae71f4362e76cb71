"""Who may write into a run directory, also where the kernel's locks do not reach: from one node to another.

``<run directory>/lease/<n>`` is the n-th worker's that took the directory. It renews the file's time every `BEAT`
seconds, and gives it the time 0 when it ends. The highest number is the holder. A number is taken by linking its file
into place, which one worker alone can do, on every file system; so a worker that was cut off and comes back sees that
it is not the holder any more, and ends without another word. The nodes' clocks must agree within half a minute, which
SLURM wants, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import gethostname
from types import TracebackType

BEAT = 15.0
"""Seconds between two signs of life."""

PATIENCE = 90.0
"""Seconds without one, after which a worker on another machine is taken for dead."""


class SupersededError(Exception):
    """Another worker has taken the run directory, as this one was cut off for long: it has no say any more."""


@cache
def machine() -> str:
    """What has the same locks: the kernel, since it was started; a host's name may be another's, too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return gethostname()


def now() -> float:
    """This machine's clock, in seconds."""
    return time.time()


@dataclass(frozen=True)
class Holder:
    """Who holds a directory: the number, the machine, and the seconds since the last sign of life."""

    number: int
    machine: str
    silent: float

    @property
    def elsewhere(self) -> bool:
        """Whether it is on another machine, and lives: on this one, the lock of the directory tells."""
        return self.machine != machine() and self.silent < PATIENCE


def holder(path: Path) -> Holder | None:
    """Who holds a run directory, or held it last; None where nobody ever did."""
    number = max(_numbers(path), default=0)
    if not number:
        return None
    file = path / "lease" / str(number)
    try:
        silent = now() - file.stat().st_mtime
        return Holder(number, str(json.loads(file.read_bytes())["machine"]), silent)
    except FileNotFoundError:  # swept by a newer one
        return holder(path)


class Lease:
    """The right to write into a run directory, renewed by a thread of its own while the context lasts."""

    def __init__(self, path: Path, number: int) -> None:
        self.folder, self.number = path / "lease", number
        self.file = self.folder / str(number)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    @classmethod
    def take(cls, path: Path) -> Lease | None:
        """Become the holder; None where another worker was quicker. The caller holds the directory's lock.

        Raises:
            FileNotFoundError: the run directory is gone.
        """
        before = holder(path)
        if before is not None and before.elsewhere:
            return None
        lease = cls(path, 1 + (before.number if before else 0))
        lease.folder.mkdir(exist_ok=True)
        draft = lease.folder / f".{gethostname()}-{os.getpid()}"
        draft.write_text(json.dumps({"machine": machine(), "host": gethostname(), "pid": os.getpid()}))
        try:
            os.link(draft, lease.file)
        except FileExistsError:
            return None
        finally:
            draft.unlink(missing_ok=True)
        for number in _numbers(path):
            if number < lease.number - 1:
                (lease.folder / str(number)).unlink(missing_ok=True)
        return lease

    def held(self) -> bool:
        """Whether nobody has taken the directory from this worker."""
        return max(_numbers(self.folder.parent), default=0) == self.number

    def __enter__(self) -> Lease:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.thread.join()
        with contextlib.suppress(OSError):
            os.utime(self.file, (0, 0))

    def _beat(self) -> None:
        while not self.over.wait(BEAT):
            with contextlib.suppress(OSError):  # a disk that is away for a while
                os.utime(self.file)


def _numbers(path: Path) -> list[int]:
    try:
        with os.scandir(f"{path}/lease") as files:
            return [int(file.name) for file in files if file.name.isdigit()]
    except FileNotFoundError:
        return []
