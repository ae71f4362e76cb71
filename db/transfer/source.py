"""Sources of imports: another database, which is never changed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, Text, select, type_coerce
from sqlalchemy.exc import DBAPIError

from dropbench.db.schema import upgrade
from dropbench.db.schema.connection import connect, database_name, disposed_on_error
from dropbench.db.schema.tables import REVISION, Attempts, Configs, Metrics, Requests, Submissions, Trials
from dropbench.db.store.rows import Row, chunks
from dropbench.db.transfer.export import read_only
from dropbench.harness.errors import InputError

BATCH_SIZE = 100
"""Trials in memory at a time, with their curves."""


@dataclass(frozen=True)
class SourceTrial:
    """The rows of a trial in a source, as mappings by column, none of them checked; `config` is JSON or parsed."""

    row: Row
    config: Any
    attempts: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)


class Source:
    """An open source, all of whose queries see the same state. Methods raise InputError if it is damaged."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name, self.connection = name, connection

    def ids(self) -> list[Any]:
        """Return the ids of all trials in ascending order, in which the tables store them."""
        return [row["id"] for row in self.rows(select(Trials.c.id).order_by(Trials.c.id))]

    def submissions(self) -> Iterator[list[Row]]:
        """Yield lists of submissions that have ended."""
        query = select(Submissions).where(Submissions.c.state == "ended").order_by(Submissions.c.id)
        return chunks(self.rows(query))

    def requests(self) -> Iterator[Row]:
        """Yield the id and the content of each request, as JSON or parsed."""
        content = type_coerce(Requests.c.content, Text)
        yield from self.rows(select(Requests.c.id, content.label("content")).order_by(Requests.c.id))

    def trials(self, ids: Sequence[Any]) -> list[SourceTrial]:
        """Return these trials with their rows of all tables."""
        config = type_coerce(Configs.c.config, Text)  # invalid JSON is reported by `dropbench.db.transfer.validation`
        query = select(Trials, config.label("config")).outerjoin(Configs).where(Trials.c.id.in_(ids))
        by_id = {row["id"]: SourceTrial(config=row.pop("config"), row=row) for row in self.rows(query)}
        for table, name, order in (
            (Attempts, "attempts", Attempts.c.number),
            (Metrics, "metrics", Metrics.c.step),
        ):
            for row in self.rows(select(table).where(table.c.trial_id.in_(ids)).order_by(order)):
                if row["trial_id"] in by_id:
                    getattr(by_id[row["trial_id"]], name).append(row)
        return [by_id[id] for id in ids if id in by_id]

    def rows(self, query: Select[Any]) -> list[Row]:
        """Return the rows of a query as mappings by column."""
        with _translate_errors(self.name):
            result = self.connection.execute(query)
            names = list(result.keys())
            return [dict(zip(names, row, strict=True)) for row in result]


@contextlib.contextmanager
def open_source(location: str, target: str) -> Iterator[Source]:
    """Open a source of an import.

    Args:
        location: a SQLite file, or a SQLAlchemy URL.
        target: the URL of the database to import into.

    Raises:
        InputError: the source does not exist, is the target, has another schema, or is damaged.
    """
    engine, name = _open(location, target)
    try:
        with _translate_errors(name):
            connection = engine.connect()
        with connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")
            else:
                options = {"postgresql_readonly": True} if engine.dialect.name == "postgresql" else {}
                connection = connection.execution_options(isolation_level="REPEATABLE READ", **options)
            yield Source(name, connection)
    finally:
        engine.dispose()


def _open(location: str, target: str) -> tuple[Engine, str]:
    """Return an engine with the current schema, and the source's name for messages."""
    path, engine, name = Path(location), None, location
    if "://" in location:
        try:
            engine = connect(location)
        except InputError as error:
            raise InputError(str(error).replace("DROPBENCH_DB", "SOURCE", 1)) from None
        path = Path(engine.url.database or "")
        name = database_name(engine)
    if engine is None or engine.dialect.name == "sqlite":
        if not path.is_file():
            raise InputError(f"{location}: no such file: expected a database")
        engine, name = read_only(path, transactions=True), str(path)
    with disposed_on_error(engine):
        _check_not_target(engine, path, target, name)
        _check_revision(engine, name)
    return engine, name


def _check_not_target(engine: Engine, path: Path, target: str, name: str) -> None:
    url = connect(target).url
    file = Path(url.database or "")
    backends = {engine.url.get_backend_name(), url.get_backend_name()}
    if engine.url == url if backends != {"sqlite"} else file.is_file() and file.samefile(path):
        raise InputError(f"{name}: is the target of the import: expected another database")


def _check_revision(engine: Engine, name: str) -> None:
    with _translate_errors(name), engine.connect() as connection:
        revision = upgrade.schema_revision(connection)
    if revision is None:
        raise InputError(f"{name}: not a DropBench database")
    if revision != REVISION:
        raise InputError(f"{name}: schema {revision} of another version of DropBench, expected {REVISION}")


@contextlib.contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Turn errors of the source's file or server into InputErrors, without advice that would change the source."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError) as error:  # the last from a message with a damaged name
        cause = " ".join(str(getattr(error, "orig", error)).split())
        raise InputError(f"{name}: cannot be read ({cause}): expected a complete DropBench database") from None
