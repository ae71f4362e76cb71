"""Connections: pragmas, transactions that never deadlock, and database errors as one line each."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError

from harness.errors import InputError

BUSY_SECONDS = 30

CACHE_KIB = 64 * 1024
"""Of SQLite's pages in memory, at most: by itself it keeps 2 MB, and a million trials are read again and again."""

_CAUSES = {
    "file is not a database": "no SQLite database; delete the file, or name another one in DROPBENCH_DB",
    "malformed": "the database is damaged; move it away, then: dropbench db rebuild",
    "unable to open database file": "cannot be opened: expected a file in a folder that exists and may be written",
    "readonly database": "is read-only: expected a file in a folder that may be written",
    "disk is full": "the disk is full; nothing was changed",
    "disk i/o error": "reading or writing the file failed (disk full or damaged?); nothing was changed",
    "locked": f"another process has held it for {BUSY_SECONDS} seconds; try again",
}
"""Part of SQLite's message → what to tell."""


def connect(url: str) -> Engine:
    """An engine for a SQLAlchemy URL; opens nothing yet.

    Raises:
        InputError: the URL is none, or its driver is not installed.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError(
            "DROPBENCH_DB: expected a SQLAlchemy URL such as sqlite:///dropbench.db or postgresql+psycopg://user@host/name"
        ) from None
    name = parsed.drivername
    try:
        engine = create_engine(parsed, **_options(parsed))
    except NoSuchModuleError:
        raise InputError(f"DROPBENCH_DB: no database is called '{name}': expected sqlite or postgresql") from None
    except ModuleNotFoundError as error:
        raise InputError(f"DROPBENCH_DB: '{name}' needs the package '{error.name}': pip install it") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    return engine


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: all of it sees one state of the database."""
    with translated(engine), engine.connect() as connection:
        if engine.dialect.name != "sqlite":  # whose transactions are always so
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes; there is one at a time, on every database, so that read-then-write is safe in it.

    SQLite takes its write lock at BEGIN IMMEDIATE; elsewhere the row that holds the schema's version is the lock.
    """
    with translated(engine), engine.connect() as connection:
        connection = connection.execution_options(dropbench_immediate=True)
        with connection.begin():
            if engine.dialect.name != "sqlite":
                connection.execute(text("SELECT version_num FROM alembic_version FOR UPDATE"))
            yield connection


@contextlib.contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn what the database says of its file, disk or server into an InputError; other errors are bugs and pass."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        said = " ".join(str(getattr(error, "orig", error)).split())
        for part, told in _CAUSES.items():
            if engine.dialect.name == "sqlite" and part in said.lower():
                raise InputError(f"{place(engine)}: {told}") from None
        if isinstance(error, OperationalError) and engine.dialect.name != "sqlite":
            raise InputError(f"{place(engine)}: {said}") from None
        raise


def place(engine: Engine) -> str:
    """The database as messages name it: the file, or the URL without its password."""
    if engine.dialect.name == "sqlite":
        return engine.url.database or "the database in memory"
    return engine.url.render_as_string(hide_password=True)


def _options(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": BUSY_SECONDS}}
    return {"pool_pre_ping": True}


def _prepare(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late: after the first read
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")


def _begin(connection: Connection) -> None:
    raw: Any = connection.connection.driver_connection
    if connection.get_execution_options().get("dropbench_immediate", False):
        _begin_writing(raw)
    else:
        raw.execute("BEGIN")


def _begin_writing(raw: sqlite3.Connection) -> None:
    """Wait for the write lock, as long as the connection is to wait for anything.

    SQLite asks the more rarely the longer it has waited, so that among many writers one may never have its turn. Here
    who has waited longer asks more often.
    """
    (timeout,) = raw.execute("PRAGMA busy_timeout").fetchone()
    start = time.monotonic()
    raw.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                raw.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - start
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited > timeout / 1000:
                    raise
                time.sleep(random.uniform(0.5, 1.5) * max(0.01 / (1 + waited), 0.001))
            else:
                return
    finally:
        raw.execute(f"PRAGMA busy_timeout = {timeout}")
