"""Check that a database is as DropBench wrote it: the file, its tables and views, and how its rows fit together."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from functools import cache
from typing import Any, get_args

from sqlalchemy import ColumnElement, Connection, Engine, create_engine, func, select
from sqlalchemy.exc import DatabaseError

from dropbench.db.schema.connection import connect, damaged, database_name, reading
from dropbench.db.schema.reference import PREFIX
from dropbench.db.schema.seal import is_sealed, seal
from dropbench.db.schema.tables import FINAL, METADATA, Attempts, Configs, Memberships, Metrics, Requests, Trials
from dropbench.db.schema.views import create_views
from dropbench.db.store.requests import membership_rows, request_row
from dropbench.db.store.rows import config_row, load_trial
from dropbench.harness.runs.attempt_record import AttemptState
from dropbench.harness.suites.request import Request
from dropbench.harness.trials.trial import TRIAL_STATES

_TYPES = {int: ["integer"], float: ["real", "integer"]}
_BOUNDS = {"seed": (0, 2**31 - 1), "value": (-sys.float_info.max, sys.float_info.max)}


class _DamageError(Exception):
    """Damage to a database; the message is for the user."""


def require_intact(engine: Engine) -> None:
    """Check a file that another program has written to, or that was copied, and report on it.

    Raises:
        InputError: it is damaged.
    """
    if is_sealed(engine):
        return
    check_content(engine)
    name = database_name(engine)
    note = f"{name} was copied, or written by another program: `dropbench db rebuild` takes its numbers from the runs"
    print(note, file=sys.stderr)
    seal(engine)


def require_intact_at(url: str) -> None:
    """Check the database of a URL as `require_intact` does."""
    engine = connect(url)
    try:
        require_intact(engine)
    finally:
        engine.dispose()


def check_content(engine: Engine) -> None:
    """Read a whole database; raise `damaged` if it is not as DropBench wrote it. Metrics may have any finite value."""
    try:
        with reading(engine) as connection:
            if engine.url.database and engine.dialect.name == "sqlite":
                _check_file(connection)
            if engine.dialect.name == "sqlite":
                _check_types(connection)
            for table, is_valid in (("trials.state", _states), ("configs", _configs), ("requests", _requests)):
                valid = False
                with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                    valid = is_valid(connection)
                if not valid:
                    raise _DamageError(f"damaged value of {table}")
    except _DamageError as error:
        raise damaged(engine, str(error), in_rows=True) from None
    except (DatabaseError, sqlite3.Error, ValueError, TypeError, LookupError, AttributeError):
        raise damaged(engine, "the database is damaged", in_rows=True) from None


def _check_file(connection: Connection) -> None:
    if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
        raise _DamageError("the database is damaged")
    if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
        raise _DamageError("rows are missing that others refer to")
    own = _own_objects()
    if own != {row for row in _objects(connection) if row[0] in {table for table, *_ in own}}:
        raise _DamageError("its tables, indexes or views were changed, or have triggers")


@cache
def _own_objects() -> set[tuple[Any, ...]]:
    """Return the objects of a new database."""
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            METADATA.create_all(connection)
            create_views(connection)
            return _objects(connection)
    finally:
        engine.dispose()


def _objects(connection: Connection) -> set[tuple[Any, ...]]:
    """Return the table, type, name and SQL of each table, index, view and trigger."""
    rows = connection.exec_driver_sql("SELECT tbl_name, type, name, sql FROM sqlite_schema").all()
    return {(*row[:3], row.sql and " ".join(row.sql.split())) for row in rows}


def _check_types(connection: Connection) -> None:
    for column in (column for table in METADATA.sorted_tables for column in table.columns):
        wrong: ColumnElement[bool] = func.typeof(column).not_in(_TYPES.get(column.type.python_type, ["text"]))
        wrong = wrong | func.julianday(column).is_(None) if column.name.endswith("_at") else wrong
        wrong = wrong | ~column.between(*_BOUNDS[column.name]) if column.name in _BOUNDS else wrong
        if connection.scalar(select(func.count()).where(column.is_not(None), wrong)):
            raise _DamageError(f"damaged value of {column}")


def _states(connection: Connection) -> bool:
    return not any(
        connection.scalar(select(func.count()).where(column.not_in(states)))
        for column, states in ((Trials.c.state, TRIAL_STATES), (Attempts.c.state, get_args(AttemptState)))
    )


def _configs(connection: Connection) -> bool:
    """Return whether configurations, trials and final values have the ids of each other; not those of a reference."""
    for row in connection.execute(select(Configs).where(Configs.c.id < PREFIX)).mappings():
        trial = load_trial(row["config"], 0, None)
        trials = connection.execute(select(Trials.c.id, Trials.c.seed).where(Trials.c.config_id == row["id"]))
        if dict(row) != config_row(trial) or any(
            id != trial.model_copy(update={"seed": seed}).id for id, seed in trials
        ):
            return False
    moved = Metrics.c.config_id.is_distinct_from(Trials.c.config_id)
    finals = select(func.count()).join_from(Metrics, Trials, Trials.c.id == Metrics.c.trial_id)
    return not connection.scalar(finals.where(Metrics.c.step == FINAL, moved))


def _requests(connection: Connection) -> bool:
    """Return whether the rows of requests and memberships are those of their content; not those of a reference."""
    for row in connection.execute(select(Requests).where(Requests.c.id < PREFIX)).mappings():
        request = Request.model_validate(row["content"])
        members = connection.execute(select(Memberships).where(Memberships.c.request == row["id"])).mappings()
        own = sorted(tuple(member.values()) for member in membership_rows(request))
        if dict(row) != request_row(request) or own != sorted(tuple(member.values()) for member in members):
            return False
    return True
