"""Bring a database up to date with all run directories and requests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import func, select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Memberships, Trials
from dropbench.db.store.run_record import RunRecord, read_run_record
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.runs.stamps import check_archive
from dropbench.harness.suites.request import Request, read_request, request_files

BATCH_SIZE = 200


@dataclass
class RebuildSummary:
    """The sources of a rebuilt database, and what is wrong with them.

    Attributes:
        recorded: number of undamaged run directories.
        requests: number of requests.
        damaged: an error line per damaged file of a run directory, and per damaged request.
        without_directory: number of trials without a run directory.
        without_request: number of trials that no request names.
        missing: number of trials that requests name, and that are nowhere.
        kept: a line per request whose file was missing, and that the previous database had.
        left_out: an error line per row of the previous database that is damaged.
        previous: the file of the previous database.
    """

    recorded: int = 0
    requests: int = 0
    damaged: list[str] = field(default_factory=list)
    without_directory: int = 0
    without_request: int = 0
    missing: int = 0
    kept: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    previous: str | None = None


def rebuild(store: Store, runs: Path, progress: Callable[[], None] = lambda: None) -> RebuildSummary:
    """Record every run directory and request below `runs`. Repeating or resuming an interrupted rebuild is safe.

    Rows of trials without a run directory do not change: such trials are queued, or their directories are elsewhere.
    The trial of a damaged run directory has failed, with the damage as its reason, if its ``trial.json`` is undamaged.

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
        if (record := _read(directory, summary)) is not None:
            batch.append(record)
        progress()
        if len(batch) == BATCH_SIZE:  # short transactions, between which other processes may write
            store.record(batch)
            batch = []
    store.record(batch)
    summary.damaged += (f"{directory.path}: no trial.json in it" for directory in Runs(runs).without_trial())
    requests: list[Request] = []
    for file in request_files(runs):
        with _reporting(summary, file):
            requests.append(read_request(file))
    store.add_requests(requests)
    summary.requests = len(requests)
    summary.without_directory = len(set(store.find(None)) - ids)
    return summary


def compare_with_requests(store: Store, summary: RebuildSummary) -> None:
    """Count the trials that no request names, and the trials of requests that are nowhere."""
    named = select(Memberships.c.trial).distinct().subquery()
    unnamed = select(func.count()).select_from(Trials).where(Trials.c.id.not_in(select(named.c.trial)))
    missing = select(func.count()).select_from(named).where(named.c.trial.not_in(select(Trials.c.id)))
    with reading(store.engine) as connection:
        summary.without_request = connection.scalar(unnamed) or 0
        summary.missing = connection.scalar(missing) or 0


def _read(directory: RunDirectory, summary: RebuildSummary) -> RunRecord | None:
    """Return the record of a run directory, None if its trial is not known, and count it."""
    damaged = len(summary.damaged)
    with _reporting(summary, directory.path):
        record = read_run_record(directory)
        summary.damaged += record.damaged
        summary.recorded += 1
        for file in sorted((directory.path / "checkpoint").glob("[!.]*.pt")):
            with _reporting(summary, file):
                check_archive(file, directory.id)
        return record
    with contextlib.suppress(InputError, OSError):
        return RunRecord(directory.trial(), "failed", reason=summary.damaged[damaged])
    return None


@contextlib.contextmanager
def _reporting(summary: RebuildSummary, path: Path) -> Iterator[None]:
    """Report a file that is damaged or cannot be read, and go on."""
    try:
        yield
    except InputError as error:
        summary.damaged.append(str(error))
    except OSError as error:
        summary.damaged.append(f"{error.filename or path}: {error.strerror}")
