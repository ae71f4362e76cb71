"""Open a file of reference results as a read-only database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from dropbench.db.reference.archive import EXPECTED, SHIPPED, unpack
from dropbench.db.reference.predictions import check_predictions
from dropbench.db.schema.connection import disposed_on_error
from dropbench.db.schema.reference import TABLES, Details
from dropbench.db.schema.tables import FINAL, METADATA
from dropbench.db.store.rows import chunks
from dropbench.db.store.store import Store
from dropbench.db.transfer.source import BATCH_SIZE, Source
from dropbench.db.transfer.validation import WrongRowError, check_row, check_trial
from dropbench.harness.errors import InputError
from dropbench.harness.files import read_bytes

REFERENCE = "reference"
"""The location of the results that are shipped with the package."""


@contextlib.contextmanager
def open_reference(location: str) -> Iterator[Store]:
    """Open reference results for reading. The trials have the ids that the user's own have.

    Every row of a file from elsewhere is validated; the shipped one is a part of the package, and validated by its
    tests.

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
    with Store(load(content, location, validates=location != REFERENCE)) as store:
        yield store


def load(content: bytes, where: str, *, validates: bool = True) -> Engine:
    """Load an archive into a database in memory, which is deleted with the engine.

    With `validates`, every row must be one that a finished trial can have.

    Raises:
        InputError: the archive is damaged, or of a version of DropBench with other tables.
    """
    private = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    private.execute("PRAGMA trusted_schema = OFF")
    engine = create_engine("sqlite://", creator=lambda: private, poolclass=StaticPool)
    try:
        with disposed_on_error(engine):
            private.deserialize(unpack(content, where))
            with engine.connect() as connection:
                _check_tables(connection)
                if validates:
                    _check(Source(where, connection))
    except (WrongRowError, DBAPIError, sqlite3.Error) as error:
        cause = " ".join(str(getattr(error, "orig", error)).split())
        raise InputError(f"{where}: {cause}: {EXPECTED}") from None
    return engine


def private_database() -> Engine:
    """Return an engine of an empty database in a file without a name, which is deleted with the engine."""
    private = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    return create_engine("sqlite://", creator=lambda: private, poolclass=StaticPool)


def _check_tables(connection: Connection) -> None:
    """Raise WrongRowError unless a database has the tables of a reference, and no views or triggers."""
    expected = {table.name: table.columns.keys() for table in (*METADATA.sorted_tables, *TABLES)}
    query = "SELECT type, name FROM sqlite_schema WHERE type != 'index'"
    given = {name: type_ for type_, name in connection.exec_driver_sql(query).all()}
    if {*given.values()} != {"table"} or given.keys() != expected.keys():
        raise WrongRowError("other tables than those of this version of DropBench")
    for name, columns in expected.items():
        if [row.name for row in connection.exec_driver_sql(f"PRAGMA table_info({name})")] != columns:
            raise WrongRowError(f"table {name} has other columns than in this version of DropBench")


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
                    raise WrongRowError("no row in details")
                check_row(Details, row)
                notes, environment = json.loads(row["notes"]), json.loads(row["environment"])
                texts = isinstance(notes, list) and all(isinstance(note, str) for note in notes)
                if not texts or not isinstance(environment, dict):
                    raise WrongRowError("details: expected a list of notes and an environment")
            except (WrongRowError, ValueError, TypeError, RecursionError) as error:
                raise WrongRowError(f"trial {trial.row['id']!a:.20}: {' '.join(str(error).split())[:200]}") from None
    check_predictions(connection)
    if details:
        raise WrongRowError(f"details: trial {min(details)!a:.20} is not in trials")
