"""The schema version of a database: create, compare, upgrade. Alembic is loaded only if there is something to do."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from dropbench.db.schema.connection import damaged, database_name, reading, translate_errors
from dropbench.db.schema.seal import seal
from dropbench.db.schema.tables import REVISION
from dropbench.harness.errors import InputError

MIGRATIONS = Path(__file__).parent / "migrations"


def ensure_current(engine: Engine) -> bool:
    """Bring the database to the current schema, creating the tables if it is empty; return whether it changed.

    Raises:
        InputError: the database has another schema, belongs to another program, or cannot be opened or written.
    """
    with reading(engine) as connection:
        if schema_revision(connection) == REVISION:
            return False
        _check_upgradable(connection, engine)
    if engine.dialect.name == "sqlite":
        _enable_wal(engine)
    with translate_errors(engine), engine.connect() as connection:
        connection = connection.execution_options(dropbench_immediate=True)
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(72707)"))
            _check_upgradable(connection, engine)  # another process may have upgraded it meanwhile
            if schema_revision(connection) == REVISION:
                return False
            from alembic import command
            from alembic.config import Config

            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
            command.upgrade(config, "head")
    seal(engine)
    return True


def check_current(engine: Engine) -> None:
    """Raise InputError if the database does not have the current schema; change nothing."""
    with reading(engine) as connection:
        revision = schema_revision(connection)
    if revision != REVISION:
        raise InputError(f"{database_name(engine)}: schema {revision}, expected {REVISION}: run `dropbench status`")


def schema_revision(connection: Connection) -> str | None:
    """Return the revision of the database's last migration, None if it has no such tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revisions = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return str(revisions[0]) if revisions else None


def _check_upgradable(connection: Connection, engine: Engine) -> None:
    revision = schema_revision(connection)
    if revision is None:
        other_tables = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
        if other_tables:
            raise damaged(engine, f"contains other tables ({other_tables[0]})")
    elif revision != REVISION:
        raise damaged(engine, f"schema {revision!a:.60} of another version of DropBench, expected {REVISION}")


def _enable_wal(engine: Engine) -> None:
    """Switch the file to write-ahead logging, so that readers and the writer do not wait for each other."""
    with translate_errors(engine), contextlib.closing(engine.raw_connection()) as raw:
        for _ in range(40):
            try:
                raw.cursor().execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                time.sleep(0.05)  # SQLite's busy timeout does not apply here; without WAL all works, but slower
            else:
                return
