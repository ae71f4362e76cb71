"""Connections: pragmas, transactions that cannot deadlock, and database errors in one line each."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
import warnings
from collections.abc import Iterator
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SAWarning

from dropbench.db.schema.seal import sealing
from dropbench.harness.errors import InputError

BUSY_TIMEOUT_S = 30

CACHE_KIB = 64 * 1024
"""SQLite's page cache. The default of 2 MB is too small for a million trials, which are read repeatedly."""

_DAMAGE = {
    "file is not a database": "not a SQLite database",
    "malformed": "the database is damaged",
    **dict.fromkeys(("no such table", "no such column", "has no column"), "tables or columns are missing"),
    **dict.fromkeys(("duplicate column name", "already exists"), "it has tables or columns of a later version"),
}
_CAUSES = {
    **_DAMAGE,
    "unable to open database file": "cannot be opened: expected a file in an existing, writable folder",
    "readonly database": "is read-only: expected a file in a writable folder",
    "disk is full": "the disk is full; nothing was changed",
    "disk i/o error": "reading or writing the file failed (disk full or damaged?); nothing was changed",
    "locked": f"locked by another process for {BUSY_TIMEOUT_S} seconds; try again",
}
"""Part of SQLite's message → the message for the user."""


class DamagedDatabaseError(InputError):
    """A SQLite file is another program's, or damaged."""


def damaged(engine: Engine, cause: str, *, in_rows: bool = False) -> InputError:
    """Return the error for a database that is another program's, or damaged, if only in its rows."""
    message = f"{database_name(engine)}: {cause}: set DROPBENCH_DB to another one"
    if engine.dialect.name != "sqlite":
        return InputError(f"{message}, or run `dropbench db rebuild`, which replaces its rows" if in_rows else message)
    return DamagedDatabaseError(f"{message}, or run `dropbench db rebuild`, which renames this one")


def connect(url: str | URL) -> Engine:
    """Return an engine without opening the database. Raise InputError for an invalid URL or a missing driver."""
    try:
        parsed = make_url(url)
        (parsed.host or "").encode("idna")
    except (ArgumentError, ValueError):  # ValueError: a port that is no number, or a host that is no name
        raise InputError(
            "DROPBENCH_DB: expected a SQLAlchemy URL such as sqlite:///PATH of a file or postgresql+psycopg://user@host/name"
        ) from None
    if any("\0" in (part or "") for part in (parsed.username, parsed.password, parsed.host, parsed.database)):
        raise InputError("DROPBENCH_DB: expected a URL without NUL (%00)")
    name, is_sqlite = parsed.drivername, parsed.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"connect_args": {"timeout": BUSY_TIMEOUT_S}} if is_sqlite else {"pool_pre_ping": True}
    try:
        with warnings.catch_warnings(action="error", category=SAWarning):
            engine = create_engine(parsed, **options)
        if is_sqlite:  # check the options of the query without opening the file
            sqlite3.connect(":memory:", **engine.dialect.create_connect_args(parsed)[1]).close()
    except NoSuchModuleError:
        raise InputError(f"DROPBENCH_DB: unknown database '{name}': expected sqlite or postgresql") from None
    except ModuleNotFoundError as error:
        raise InputError(f"DROPBENCH_DB: '{name}' needs the package '{error.name}': install it with pip") from None
    except (ArgumentError, ArithmeticError, SAWarning, TypeError, ValueError, sqlite3.Error) as error:
        raise InputError(f"DROPBENCH_DB: invalid option in the URL: {error.args[0]}") from None
    if is_sqlite:
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    return engine


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a read-only transaction, which sees one state of the database."""
    with translate_errors(engine), engine.connect() as connection:
        if engine.dialect.name != "sqlite":  # SQLite's transactions always see one state
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a write transaction. Only one is open at a time on every database, so that read-then-write is safe.

    SQLite takes its write lock at BEGIN IMMEDIATE; on other databases the row with the schema's version is the lock.
    """
    with translate_errors(engine), engine.connect() as connection:
        connection = connection.execution_options(dropbench_immediate=True)
        with sealing(engine), connection.begin():
            if engine.dialect.name != "sqlite":
                connection.execute(text("SELECT version_num FROM alembic_version FOR UPDATE"))
            yield connection


@contextlib.contextmanager
def translate_errors(engine: Engine) -> Iterator[None]:
    """Turn errors about the file, the disk, the server or a trigger into InputErrors; others are bugs and propagate."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        cause = " ".join(str(getattr(error, "orig", error)).split())
        for part, message in _CAUSES.items():
            if engine.dialect.name == "sqlite" and part in cause.lower():
                if part in _DAMAGE:
                    raise damaged(engine, message) from None
                raise InputError(f"{database_name(engine)}: {message}") from None
        if getattr(getattr(error, "orig", error), "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
            raise InputError(f"{database_name(engine)}: a trigger refuses the change: {cause}") from None
        refused = isinstance(error, OperationalError) or getattr(error, "statement", "") is None  # in connecting
        if refused and engine.dialect.name != "sqlite":
            raise InputError(f"{database_name(engine)}: {cause}") from None
        raise
    except UnicodeDecodeError:  # SQLite's message has a damaged name
        raise damaged(engine, _DAMAGE["malformed"]) from None


@contextlib.contextmanager
def disposed_on_error(engine: Engine) -> Iterator[None]:
    """Close the engine's connections if the block raises."""
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


def database_name(engine: Engine) -> str:
    """Return the database's name for messages: the file, or the URL without its password and options."""
    if engine.dialect.name == "sqlite":
        return engine.url.database or "the database in memory"
    shown = {key: value for key, value in engine.url.query.items() if key in ("host", "port")}
    return engine.url.set(query=shown).render_as_string(hide_password=True)


def _prepare(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late: after the first read
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")


def _begin(connection: Connection) -> None:
    """Begin a transaction; one that writes waits for the write lock until the connection's busy timeout.

    SQLite's own busy handler retries less often the longer it has waited, so that one of many writers may starve. This
    loop retries more often the longer it has waited.
    """
    raw: Any = connection.connection.driver_connection
    if not connection.get_execution_options().get("dropbench_immediate", False):
        raw.execute("BEGIN")
        return
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
