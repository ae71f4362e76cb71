"""The version of a database: made, compared, upgraded. Alembic is loaded only where there is something to do."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, inspect, text

from db.connection import place, reading, translated
from db.models import REVISION
from harness.errors import InputError

MIGRATIONS = Path(__file__).parent / "migrations"


def ensure(engine: Engine) -> bool:
    """Bring the database to this version, made new where it is empty; True where that took anything.

    Raises:
        InputError: it is of a newer version, of another program, or cannot be opened or written.
    """
    with reading(engine) as connection:
        if revision(connection) == REVISION:
            return False
        _check(connection, engine)
    if engine.dialect.name == "sqlite":
        _write_ahead(engine)
    with translated(engine), engine.connect() as connection:
        connection = connection.execution_options(dropbench_immediate=True)
        with _tables_remade(connection), connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(72707)"))
            _check(connection, engine)  # another process may have been quicker
            if revision(connection) == REVISION:
                return False
            _upgrade(connection)
    return True


def check_current(engine: Engine) -> None:
    """Raise InputError where the database is not of this version; changes nothing."""
    with reading(engine) as connection:
        found = revision(connection)
    if found != REVISION:
        raise InputError(f"{place(engine)}: schema {found}, expected {REVISION}: dropbench db upgrade")


def revision(connection: Connection) -> str | None:
    """The migration the database is at, None for one without our tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return str(found[0]) if found else None


def _check(connection: Connection, engine: Engine) -> None:
    found = revision(connection)
    if found is None:
        others = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
        if others:
            raise InputError(f"{place(engine)}: holds other tables ({others[0]}): expected a database of its own")
    elif found not in {file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*.py")}:
        raise InputError(
            f"{place(engine)}: made by a newer DropBench (schema {found}, this one knows {REVISION}): update DropBench"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextlib.contextmanager
def _tables_remade(connection: Connection) -> Iterator[None]:
    """SQLite alters a table by making it anew; until its rows are in it, those that refer to it refer to nothing.

    The switch does nothing inside of a transaction, and any statement of SQLAlchemy's begins one.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    raw: Any = connection.connection.driver_connection
    raw.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        raw.execute("PRAGMA foreign_keys = ON")


def _write_ahead(engine: Engine) -> None:
    """Readers and the writer do not wait for each other from now on; the file remembers it."""
    with translated(engine), contextlib.closing(engine.raw_connection()) as raw:
        for _ in range(40):
            try:
                raw.cursor().execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                time.sleep(0.05)  # here alone SQLite does not wait by itself; without it all works, but slower
            else:
                return
