"""Bring the database up to date with all run directories and requests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import make_url

from dropbench.db.schema.connection import DamagedDatabaseError
from dropbench.db.store.rows import check_content
from dropbench.db.store.run_record import RunRecord, read_run_record
from dropbench.db.store.store import Store, open_store
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.suites.request import Request, read_request, request_files

BATCH_SIZE = 200


@dataclass
class RebuildSummary:
    """The number of recorded run directories and requests.

    Attributes:
        recorded: number of run directories.
        requests: number of requests.
        damaged: an error line per damaged run directory or request.
        without_directory: number of trials without a run directory.
    """

    recorded: int = 0
    requests: int = 0
    damaged: list[str] = field(default_factory=list)
    without_directory: int = 0


def rebuild(store: Store, runs: Path, progress: Callable[[], None] = lambda: None) -> RebuildSummary:
    """Record every run directory and request below `runs`. Repeating or resuming an interrupted rebuild is safe.

    Rows of trials without a run directory do not change: such trials are queued, or their directories are elsewhere.
    Damaged run directories are skipped and reported.

    Args:
        store: an empty or outdated database.
        runs: the root of the run directories.
        progress: called after each directory.

    Raises:
        InputError: `runs` does not exist.
    """
    if not runs.is_dir():
        raise InputError(f"{runs}: no such folder: expected the run directories (DROPBENCH_RUNS)")
    summary = RebuildSummary()
    ids: set[str] = set()
    batch: list[RunRecord] = []
    for directory in Runs(runs):
        ids.add(directory.id)
        with _reporting(summary, directory.path):
            batch.append(read_run_record(directory))
            summary.recorded += 1
        progress()
        if len(batch) == BATCH_SIZE:  # short transactions, between which other processes may write
            store.record(batch)
            batch = []
    store.record(batch)
    requests: list[Request] = []
    for file in request_files(runs):
        with _reporting(summary, file):
            requests.append(read_request(file))
    store.add_requests(requests)
    summary.requests = len(requests)
    summary.without_directory = len(set(store.find(None)) - ids)
    return summary


@contextlib.contextmanager
def _reporting(summary: RebuildSummary, path: Path) -> Iterator[None]:
    """Report a file that is damaged or cannot be read, and go on."""
    try:
        yield
    except InputError as error:
        summary.damaged.append(str(error))
    except OSError as error:
        summary.damaged.append(f"{error.filename or path}: {error.strerror}")


def open_undamaged(url: str) -> Store:
    """Open the database. A SQLite file that is damaged or another program's is renamed to ``<name>.damaged-<time>``."""
    try:
        with open_store(url) as store:
            check_content(store.engine)
    except DamagedDatabaseError:
        file, time = make_url(url).database, utc_now_iso()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{file}{suffix}").rename(f"{file}.damaged-{time}{suffix}")
    return open_store(url)
