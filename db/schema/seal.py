"""Notice that another program has written to a SQLite file, or copied it, by a mark in its time of modification.

After each of its own writes, DropBench replaces the microseconds of the time by a digest of its seconds and the file's
size. A file without this mark looks touched. Times in whole seconds are of a file system that keeps no others.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine

WRITE_S = 1.0
"""Seconds that another DropBench process may take between a write and its mark."""


def is_sealed(engine: Engine) -> bool:
    """Return whether a database looks as DropBench left it; wait for a process that is writing to it."""
    try:
        while True:
            status = _file(engine).stat()
            nanoseconds = status.st_mtime_ns % 10**9
            if nanoseconds in (0, _mark(status)):
                return True
            if not 0 <= time.time() - status.st_mtime < WRITE_S:
                return False
            time.sleep(0.02)
    except OSError:  # no file
        return True


def seal(engine: Engine) -> None:
    """Mark the file of a database, unless it is another user's."""
    with contextlib.suppress(OSError):
        file = _file(engine)
        status = file.stat()
        modified = status.st_mtime_ns // 10**9 * 10**9 + _mark(status)
        os.utime(file, ns=(status.st_atime_ns, modified))


@contextlib.contextmanager
def sealing(engine: Engine) -> Iterator[None]:
    """Seal the file after the block, which writes to it, if it was sealed before."""
    sealed = is_sealed(engine)
    yield
    if sealed:
        seal(engine)


def _file(engine: Engine) -> Path:
    name = engine.url.database if engine.dialect.name == "sqlite" else None
    if not name:
        raise FileNotFoundError
    return Path(name)


def _mark(status: os.stat_result) -> int:
    """Return the nanoseconds of a sealed file, which are whole microseconds."""
    digest = zlib.crc32(f"{status.st_mtime_ns // 10**9} {status.st_size}".encode())
    return 1000 * (1 + digest % 999_999)
