"""Export the database as plain files, and run read-only SQL queries."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Literal
from urllib.parse import quote

from sqlalchemy import JSON, Connection, Engine, Table, create_engine, select, text
from sqlalchemy.exc import DBAPIError, ResourceClosedError
from sqlalchemy.pool import NullPool, SingletonThreadPool

from dropbench.db.schema.connection import BUSY_TIMEOUT_S, connect, reading, translate_errors
from dropbench.db.schema.tables import METADATA
from dropbench.db.store.check import require_intact_at
from dropbench.db.store.rows import Row
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.files import atomic_file

_READ_ACTIONS = {getattr(sqlite3, f"SQLITE_{name}") for name in ["SELECT", "READ", "FUNCTION", "RECURSIVE", "PRAGMA"]}

BATCH_SIZE = 10_000
"""Rows in memory at a time."""


def export(store: Store, folder: Path, kind: Literal["csv", "parquet"]) -> list[tuple[Path, int]]:
    """Write each table to its own file, atomically. Return the files and their numbers of rows.

    Raises:
        InputError: the folder already has such files or cannot be written, or pyarrow is not installed.
    """
    files = {folder / f"{table.name}.{kind}": table for table in METADATA.sorted_tables}
    for file in files:
        if file.exists():
            raise InputError(f"{file}: exists already: expected an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with reading(store.engine) as connection:
            return [(file, write_table(connection, table, file, kind)) for file, table in files.items()]
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}: expected a writable folder") from None


def query(url: str, statement: str) -> tuple[list[str], list[list[Any]]]:
    """Run one SQL statement; the database refuses statements that write.

    Returns:
        the names of the columns, and the rows.

    Raises:
        InputError: the statement is invalid or writes, or there is no database.
    """
    require_intact_at(url)
    engine = connect_read_only(url, views=True)
    try:
        with translate_errors(engine):
            connection = engine.connect()
        with connection:
            result = connection.execute(text(statement.replace(":", r"\:")))  # it has no parameters
            return list(result.keys()), [list(row) for row in result]
    except ResourceClosedError:
        raise InputError("sql: the statement returns no rows: expected a SELECT") from None
    except (DBAPIError, sqlite3.Warning) as error:
        message = " ".join(str(getattr(error, "orig", error)).split())
        if "readonly" in message or "authoriz" in message:
            message = "expected a statement that only reads"
        raise InputError(f"sql: {message}") from None
    finally:
        engine.dispose()


def connect_read_only(url: str, *, views: bool = False) -> Engine:
    """Return an engine that refuses every change; errors as in `connect` and `read_only`."""
    engine = connect(url)
    if engine.dialect.name == "sqlite":
        return read_only(Path(engine.url.database or ""), views=views)
    return engine.execution_options(postgresql_readonly=True)


def read_only(file: Path, *, transactions: bool = False, views: bool = False) -> Engine:
    """Return an engine for a SQLite database that refuses every change. Raise InputError if there is no such file.

    Args:
        file: the database.
        transactions: keep the connection open, and allow ``BEGIN``, so that several queries see the same state.
        views: allow views to call any function, as ours call JSON functions; not for files of unknown origin.
    """
    if not file.is_file():
        raise InputError(f"{file}: no database yet: `dropbench run SUITE` creates it")
    allowed = _READ_ACTIONS | ({sqlite3.SQLITE_TRANSACTION} if transactions else set())

    def open_connection() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(file.absolute()))}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA trusted_schema = {'ON' if views else 'OFF'}")
        connection.execute("SELECT value FROM json_each('[]')")  # registers json_each, which the authorizer would deny
        # Read-only mode covers only this file: ATTACH and VACUUM INTO could still create others.
        connection.set_authorizer(lambda action, *rest: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY)
        return connection

    # A connection takes longer to open than most queries take, so those of one report or import share it.
    pool = SingletonThreadPool if transactions else NullPool
    return create_engine("sqlite://", creator=open_connection, poolclass=pool)


def write_table(connection: Connection, table: Table, path: Path, kind: Literal["csv", "parquet"]) -> int:
    """Write a table to a file, sorted by its key, atomically. Return the number of rows."""
    open_writer = _csv_writer if kind == "csv" else _parquet_writer
    result = connection.execution_options(yield_per=BATCH_SIZE).execute(select(table).order_by(*table.primary_key))
    json_columns = [column.name for column in table.columns if isinstance(column.type, JSON)]
    count = 0
    with atomic_file(path) as file, open_writer(table, file) as write:
        for batch in result.mappings().partitions(BATCH_SIZE):
            write([{**row, **{name: json.dumps(row[name]) for name in json_columns}} for row in batch])
            count += len(batch)
    return count


@contextlib.contextmanager
def _csv_writer(table: Table, file: BinaryIO) -> Iterator[Callable[[list[Row]], None]]:
    # Rows end with a line feed, but text with a carriage return (of a progress bar) has to be quoted, too: Python's CSV
    # writer quotes only the characters of its line terminator, and its reader ends a row at either.
    lines: Any = SimpleNamespace(write=lambda row: file.write((row.removesuffix("\r\n") + "\n").encode()))
    writer = csv.DictWriter(lines, table.columns.keys(), lineterminator="\r\n")
    writer.writeheader()
    yield writer.writerows


def import_pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet. Raise InputError if they are not installed."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("Parquet needs the package pyarrow: run `pip install pyarrow`") from None


@contextlib.contextmanager
def _parquet_writer(table: Table, file: BinaryIO) -> Iterator[Callable[[list[Row]], None]]:
    pyarrow, parquet = import_pyarrow()
    types = {int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema(
        [(column.name, types.get(column.type.python_type, pyarrow.string())) for column in table.columns]
    )
    with parquet.ParquetWriter(file, schema) as writer:
        yield lambda rows: writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
