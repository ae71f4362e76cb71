"""Open a file of reference results as a read-only database."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine, create_engine, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from db.reference.archive import EXPECTED, FORMAT, SHIPPED, unpack
from db.reference.predictions import check_predictions
from db.schema.connection import disposed_on_error, reading
from db.schema.reference import TABLES, Details
from db.schema.tables import FINAL, REVISION, Trials
from db.store.rows import chunks
from db.store.store import Store
from db.transfer.export import read_only
from db.transfer.source import BATCH_SIZE, Source
from db.transfer.staging import fill, load_export
from db.transfer.validation import WrongRowError, check_row, check_trial
from harness.errors import InputError
from harness.files import atomic_file, cache_folder, read_bytes

REFERENCE = "reference"
"""The location of the results that are shipped with the package."""


@contextlib.contextmanager
def open_reference(location: str) -> Iterator[Store]:
    """Open reference results for reading. The trials have the ids that the user's own have.

    The first call stores the database in the user's cache folder under the digest of the file. It validates every row
    of a file from elsewhere; the shipped one is a part of the package, and validated by its tests.

    Args:
        location: `REFERENCE`, or the path of another such file.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    path = SHIPPED if location == REFERENCE else Path(location)
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise InputError(f"--with {location}: no such file: {EXPECTED}") from None
    digest = hashlib.sha256(content).hexdigest()[:16]
    cached = cache_folder() / "reference" / f"{digest}-{FORMAT}-{REVISION}.db"
    engine = _opened(cached)
    if engine is None:
        engine = load(content, location, validates=location != REFERENCE)
        with contextlib.suppress(OSError, sqlite3.Error):  # a read-only home: load it again next time
            _save(engine, cached)
    with Store(engine) as store:
        yield store


def load(content: bytes, where: str, *, validates: bool = True) -> Engine:
    """Load an archive into a temporary database, which is deleted with the engine.

    With `validates`, every row must be one that a finished trial can have.

    Raises:
        InputError: the archive is damaged.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack(content, folder, where)
        try:
            engine = load_export(folder, lambda: None)
            with disposed_on_error(engine), engine.begin() as connection:
                Details.metadata.create_all(connection)
                for table in TABLES:
                    if (file := folder / f"{table.name}.csv").exists():
                        fill(connection, table, file, lambda: None)
                if validates:
                    _check(Source(where, connection))
        except (InputError, WrongRowError) as error:
            message = str(error).replace(f"{folder}/", f"{where}: ")
            raise InputError(message if where in message else f"{where}: {message}: {EXPECTED}") from None
    return engine


def private_database() -> Engine:
    """Return an engine of an empty database in a file without a name, which is deleted with the engine."""
    private = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    return create_engine("sqlite://", creator=lambda: private, poolclass=StaticPool)


def _check(source: Source) -> None:
    """Raise WrongRowError unless all trials are finished, have the ids of their content, and have details."""
    connection = source.connection
    details = {row["trial_id"]: dict(row) for row in connection.execute(select(Details)).mappings()}
    for ids in chunks(source.ids(), BATCH_SIZE):
        for trial in source.trials(ids):
            try:
                record = check_trial(trial)
                row = details.pop(record.trial.id, None)
                if record.state != "succeeded" or any(step != FINAL for _, step, _ in record.metrics):
                    raise WrongRowError("expected the final values of a finished trial")
                if row is None:
                    raise WrongRowError("no row in details.csv")
                check_row(Details, row)
                notes, environment = json.loads(row["notes"]), json.loads(row["environment"])
                texts = isinstance(notes, list) and all(isinstance(note, str) for note in notes)
                if not texts or not isinstance(environment, dict):
                    raise WrongRowError("details: expected a list of notes and an environment")
            except (WrongRowError, ValueError, TypeError, RecursionError) as error:
                raise WrongRowError(f"trial {trial.row['id']!a:.20}: {' '.join(str(error).split())[:200]}") from None
    check_predictions(connection)
    if details:
        raise WrongRowError(f"details.csv: trial {min(details)!a:.20} is not in trials.csv")


def _opened(cached: Path) -> Engine | None:
    """Return the engine of a cached database; None if there is none, or it is damaged."""
    if not cached.is_file():
        return None
    engine = read_only(cached, transactions=True)
    try:
        with reading(engine) as connection:
            for table in (*TABLES, Trials):
                connection.execute(select(table).limit(1)).all()
    except (InputError, DBAPIError, sqlite3.Error):
        engine.dispose()
        return None
    return engine


def _save(engine: Engine, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file, contextlib.closing(sqlite3.connect(file.name)) as target:
        raw = engine.raw_connection()
        raw.driver_connection.backup(target)  # type: ignore[union-attr]
        raw.close()
