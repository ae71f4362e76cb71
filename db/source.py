"""Where results are imported from: another database, which is never changed, or a folder as `db export` writes it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, Text, select, type_coerce
from sqlalchemy.exc import DBAPIError

from db import schema
from db.connection import connect, place
from db.export import read_only
from db.models import REVISION, Attempts, Configs, Memberships, Metrics, Submissions, Trials
from db.rows import chunks
from db.staging import Step, stage
from harness.errors import InputError

BATCH = 100
"""Trials in memory at a time, with their curves."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """What a source has of a trial: rows by the names of their columns, nothing of it checked.

    Attributes:
        trial: its row.
        config: its configuration, as JSON or read from it.
        suites: rows of the suites that asked for it.
        attempts: rows, in order.
        metrics: rows.
    """

    trial: Row
    config: Any
    suites: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)


class Source:
    """An open source; all its answers are of one state of it. Methods raise InputError where it is damaged."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name, self.connection = name, connection

    def ids(self) -> list[Any]:
        """The ids of all trials, in their order, which is the tables' own."""
        return [row["id"] for row in self._rows(select(Trials.c.id).order_by(Trials.c.id))]

    def submissions(self) -> Iterator[list[Row]]:
        """The submissions that have ended."""
        query = select(Submissions).where(Submissions.c.state == "ended").order_by(Submissions.c.id)
        return chunks(self._rows(query))

    def trials(self, ids: Sequence[Any]) -> list[Found]:
        """These trials, with all that belongs to them."""
        config = type_coerce(Configs.c.config, Text)  # JSON that is none is told of by whoever checks it
        query = select(Trials, config.label("config")).outerjoin(Configs).where(Trials.c.id.in_(ids))
        found = {row["id"]: Found(config=row.pop("config"), trial=row) for row in self._rows(query)}
        for table, name, order in (
            (Memberships, "suites", Memberships.c.suite),
            (Attempts, "attempts", Attempts.c.number),
            (Metrics, "metrics", Metrics.c.step),
        ):
            for row in self._rows(select(table).where(table.c.trial_id.in_(ids)).order_by(order)):
                if row["trial_id"] in found:
                    getattr(found[row["trial_id"]], name).append(row)
        return [found[id] for id in ids if id in found]

    def _rows(self, query: Select[Any]) -> list[Row]:
        with _told(self.name):
            found = self.connection.execute(query)
            names = list(found.keys())
            return [dict(zip(names, row, strict=True)) for row in found]


@contextlib.contextmanager
def open_source(given: str, here: str, step: Step = lambda: None) -> Iterator[Source]:
    """Open what results are imported from.

    Args:
        given: a folder, a SQLite file, or a SQLAlchemy URL.
        here: the URL of the database that they are imported into.
        step: called again and again while files are read.

    Raises:
        InputError: there is none, it is `here`, of another version, or damaged.
    """
    engine, name = _open(given, here, step)
    try:
        with _told(name):
            connection = engine.connect()
        with connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")
            else:
                level = {"isolation_level": "REPEATABLE READ"}
                more = {"postgresql_readonly": True} if engine.dialect.name == "postgresql" else {}
                connection = connection.execution_options(**level, **more)
            yield Source(name, connection)
    finally:
        engine.dispose()


def _open(given: str, here: str, step: Step) -> tuple[Engine, str]:
    """An engine for it, and how messages name it; a database has been seen to be of this version."""
    path, engine, name = Path(given), None, given
    if "://" in given:
        try:
            engine = connect(given)
        except InputError as error:
            raise InputError(str(error).replace("DROPBENCH_DB", "SOURCE", 1)) from None
        path = Path(engine.url.database or "")
        name = place(engine)
    elif path.is_dir():
        return stage(path, step), given
    if engine is None or engine.dialect.name == "sqlite":
        if not path.is_file():
            raise InputError(f"{given}: nothing there: expected a database, or a folder that dropbench db export wrote")
        engine, name = read_only(path, transactions=True), str(path)
    try:
        _check_other(engine, path, here, name)
        _check_revision(engine, name)
    except BaseException:
        engine.dispose()
        raise
    return engine, name


def _check_other(engine: Engine, path: Path, here: str, name: str) -> None:
    url = connect(here).url
    own = Path(url.database or "")
    both = {engine.url.get_backend_name(), url.get_backend_name()}
    if engine.url == url if both != {"sqlite"} else own.is_file() and own.samefile(path):
        raise InputError(f"{name}: is the database itself: expected another one")


def _check_revision(engine: Engine, name: str) -> None:
    with _told(name), engine.connect() as connection:
        found = schema.revision(connection)
    if found is None:
        raise InputError(f"{name}: no database of DropBench: expected one, or a folder that dropbench db export wrote")
    if found not in {file.name[:4] for file in (schema.MIGRATIONS / "versions").glob("[0-9]*.py")}:
        raise InputError(
            f"{name}: made by a newer DropBench (schema {found}, this one knows {REVISION}): update it here"
        )
    if found != REVISION:
        first = "run dropbench db upgrade on it first, with DROPBENCH_DB naming it"
        raise InputError(f"{name}: schema {found}, expected {REVISION}; no source is changed: {first}")


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """What the source's file or server says, as one line that tells nobody to touch it."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        said = " ".join(str(getattr(error, "orig", error)).split())
        raise InputError(f"{name}: cannot be read ({said}): expected a whole database of DropBench") from None
