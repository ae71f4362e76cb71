"""Make a database again from the run directories and requests, and put it in the place of the previous one.

What they do not have is taken from the previous one, after it was checked: queued trials, imported results, and jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from sqlalchemy import URL, Connection, Engine, create_engine, delete, insert, select, update
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool

from dropbench.db.schema.connection import connect, writing
from dropbench.db.schema.tables import FINAL, METADATA, Submissions, SubmissionState, Trials
from dropbench.db.schema.upgrade import ensure_current
from dropbench.db.store.check import check_content
from dropbench.db.store.rebuild import RebuildSummary, compare_with_requests, rebuild
from dropbench.db.store.rows import Row, chunks, in_list, insert_rows
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, open_store
from dropbench.db.transfer.source import BATCH_SIZE, Source, SourceTrial
from dropbench.db.transfer.validation import WrongRowError, check_request, check_row, check_trial
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.suites.request import write_request

IN_USE_S = 10.0
"""Seconds to wait for other processes that use the previous database."""
SUFFIXES = ("-wal", "-shm", "-journal")
"""Files that SQLite may have beside a database."""


def rebuild_database(url: str, runs: Path, progress: Callable[[], None] = lambda: None) -> RebuildSummary:
    """Replace a database by one that is made from the run directories and requests below `runs`.

    A SQLite file is replaced as a whole, whatever happened to it, and renamed to ``<name>.old-<time>``. On a server,
    all rows are replaced in one transaction.

    Args:
        url: SQLAlchemy URL of the database; it need not exist.
        runs: the root of the run directories.
        progress: called after each directory.

    Raises:
        InputError: `runs` does not exist, another process uses the file, the database cannot be written, or its URL
            names no file.
    """
    engine = connect(url)
    try:
        if engine.dialect.name != "sqlite":
            return _replace_rows(engine, runs, progress)
        if (name := engine.url.database or "") in ("", ":memory:") or name.startswith("file:"):
            raise InputError("DROPBENCH_DB: expected a file, such as sqlite:///dropbench.db")
        return _replace_file(Path(os.path.realpath(name)), runs, progress)
    finally:
        engine.dispose()


def _replace_file(file: Path, runs: Path, progress: Callable[[], None]) -> RebuildSummary:
    new = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        with _held(file) as previous:
            pattern = rf"\.{re.escape(file.name)}\.[0-9a-f]{{8}}(-\w+)?"
            for other in file.parent.iterdir() if previous is not None else ():
                if re.fullmatch(pattern, other.name):  # of a command that was killed
                    other.unlink()
            with open_store(URL.create("sqlite", database=str(new))) as store:
                summary = _fill(store, runs, previous, progress)
            if file.exists():
                if previous is None:
                    summary.left_out.append(f"{file}: cannot be read")
                summary.previous = f"{file}.old-{utc_now_iso()}"
                shutil.copymode(file, new)
                for suffix in SUFFIXES:  # of a file that cannot be read
                    with contextlib.suppress(FileNotFoundError):
                        Path(f"{file}{suffix}").rename(f"{summary.previous}{suffix}")
                try:
                    os.link(file, summary.previous)
                except OSError:  # the file system has no links
                    file.rename(summary.previous)
            os.replace(new, file)
    finally:
        for suffix in ("", *SUFFIXES):
            Path(f"{new}{suffix}").unlink(missing_ok=True)
    return summary


def _replace_rows(engine: Engine, runs: Path, progress: Callable[[], None]) -> RebuildSummary:
    ensure_current(engine)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(URL.create("sqlite", database=f"{folder}/new.db")) as store,
        writing(engine) as connection,
        store.engine.connect() as made,
    ):
        summary = _fill(store, runs, connection, progress)
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))
        for table in METADATA.sorted_tables:
            rows = made.execution_options(yield_per=BATCH_SIZE).execute(select(table)).mappings()
            for batch in rows.partitions():
                connection.execute(insert(table), [dict(row) for row in batch])
    return summary


@contextlib.contextmanager
def _held(file: Path) -> Iterator[Connection | None]:
    """Keep all other processes away from a SQLite file, and yield a connection to it; None if it cannot be read."""
    if not file.exists():
        yield None
        return
    try:
        raw = sqlite3.connect(file, timeout=0, isolation_level=None)
    except sqlite3.OperationalError as error:  # a folder
        raise InputError(f"{file}: {error}: expected a file") from None
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
    with contextlib.closing(raw), engine.connect() as connection:
        yield connection if _lock(raw, file) else None


def _lock(raw: sqlite3.Connection, file: Path) -> bool:
    """Take all locks of a file, and join its journal files with it; return False if it cannot be read."""
    deadline = time.monotonic() + IN_USE_S
    while True:
        try:
            raw.execute("PRAGMA trusted_schema = OFF")
            raw.execute("PRAGMA journal_mode = DELETE")  # refused while any process has the file open
            raw.execute("BEGIN EXCLUSIVE")
            return True
        except sqlite3.DatabaseError as error:
            cause = str(error)
            if "readonly" in cause or "unable to open" in cause:
                raise InputError(f"{file}: {cause}: expected a file in a writable folder") from None
            if "locked" not in cause:
                return False
        if time.monotonic() > deadline:
            raise InputError(f"{file}: in use: end `dropbench run` and other readers, then run this command again")
        time.sleep(0.05)


def _fill(store: Store, runs: Path, previous: Connection | None, progress: Callable[[], None]) -> RebuildSummary:
    """Fill an empty database from the run directories, then with what only the previous one has; check it."""
    summary = rebuild(store, runs, progress)
    if previous is not None:
        source = Source("the previous database", previous)
        healthy = _is_healthy(previous)
        submissions: set[str] = set()
        with _noting(summary):
            submissions = _keep_submissions(source, store, summary)
        with _noting(summary):
            _keep_requests(source, store, runs, summary)
        with _noting(summary):
            _keep_trials(source, store, runs, summary, healthy=healthy)
        with _noting(summary):
            _keep_active(source, store, submissions)
        if not healthy:
            summary.left_out.append("the previous database is damaged")
    compare_with_requests(store, summary)
    check_content(store.engine)
    return summary


@contextlib.contextmanager
def _noting(summary: RebuildSummary) -> Iterator[None]:
    """Note that a part of the previous database cannot be read, and go on."""
    try:
        yield
    except InputError as error:
        summary.left_out.append(str(error))


def _is_healthy(connection: Connection) -> bool:
    """Return whether SQLite finds no damage to the structure of a file."""
    if connection.dialect.name != "sqlite":
        return True
    try:
        return connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() == "ok"
    except (DatabaseError, UnicodeDecodeError):
        return False


def _keep_submissions(source: Source, store: Store, summary: RebuildSummary) -> set[str]:
    kept: list[Row] = []
    for row in source.rows(select(Submissions)):
        try:
            if row["state"] not in get_args(SubmissionState):
                raise WrongRowError(f"state = {row['state']!a:.20}")
            kept.append({**check_row(Submissions, {**row, "state": "ended"}), "state": row["state"]})
        except WrongRowError as error:
            summary.left_out.append(f"submission {row['id']!a:.40}: {error}")
    with writing(store.engine) as connection:
        insert_rows(connection, Submissions, kept)
    return {row["id"] for row in kept}


def _keep_requests(source: Source, store: Store, runs: Path, summary: RebuildSummary) -> None:
    for row in source.requests():
        try:
            request = check_request(row)
            if store.add_requests([request]):
                summary.requests += 1
                write_request(runs, request)
                summary.kept.append(f"request {request.id} ({request.suite.name or 'no suite'}): its file was missing")
        except (WrongRowError, OSError) as error:
            summary.left_out.append(f"request {row['id']!a:.40}: {error}")


def _keep_trials(source: Source, store: Store, runs: Path, summary: RebuildSummary, *, healthy: bool) -> None:
    """Take over the trials without a run directory; those of a damaged one have failed."""
    known = set(store.find(None))
    for ids in chunks((id for id in source.ids() if id not in known), BATCH_SIZE):
        records = []
        for trial in _trials(source, ids, summary):
            try:
                record = check_trial(trial)
                if (id := record.trial.id) in Runs(runs):
                    reason = next((line for line in summary.damaged if id in line), "its run directory is damaged")
                    record = RunRecord(record.trial, "failed", reason)
                elif not healthy and any(step == FINAL for _, step, _ in record.metrics):
                    raise WrongRowError("its result is in the damaged database alone")
                else:
                    summary.without_directory += 1
                records.append(record)
            except WrongRowError as error:
                summary.left_out.append(f"trial {trial.row['id']!a:.40}: {error}")
        store.record(records)


def _trials(source: Source, ids: list[Any], summary: RebuildSummary) -> Iterable[SourceTrial]:
    """Return trials, as far as they can be read."""
    try:
        return source.trials(ids)
    except InputError as error:
        if len(ids) > 1:
            return [trial for id in ids for trial in _trials(source, [id], summary)]
        summary.left_out.append(f"trial {ids[0]!a:.40}: {error}")
        return []


def _keep_active(source: Source, store: Store, submissions: set[str]) -> None:
    """Leave the trials of open submissions to the next command, which looks at their jobs."""
    query = select(*Trials.c["id", "state", "submission_id"]).where(Trials.c.state.in_(("submitted", "running")))
    groups: dict[tuple[str, str], list[str]] = {}
    for row in source.rows(query):
        if row["submission_id"] in submissions and isinstance(row["id"], str):
            groups.setdefault((row["state"], row["submission_id"]), []).append(row["id"])
    with writing(store.engine) as connection:
        for (state, submission), ids in groups.items():
            active = in_list(connection, Trials.c.id, ids), Trials.c.state.in_(("queued", "running"))
            connection.execute(update(Trials).where(*active).values(state=state, reason=None, submission_id=submission))
