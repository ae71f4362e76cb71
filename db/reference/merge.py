"""Results of the user and of a reference in one database for reading, which is neither of theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import JSON, Connection, Text, cast, func, insert, literal, select

from dropbench.db.schema.connection import disposed_on_error, reading
from dropbench.db.schema.reference import PREFIX, TABLES, Details
from dropbench.db.schema.tables import METADATA, Configs, Requests, Submissions, Trials
from dropbench.db.store.store import Store

BATCH_SIZE = 10_000
"""Rows in memory at a time."""

_IDS = ("trial_id", "config_id", "request", "trial")
"""Columns with ids of trials, configurations or requests."""


@contextlib.contextmanager
def opened_with(own: Store, location: str | None) -> Iterator[Store]:
    """Open a database with the user's trials and those of a reference; None: only the user's.

    Reference trials have ids and configurations of their own (`dropbench.db.schema.reference`), so that no query
    averages them with the user's. Raises InputError as `dropbench.db.reference.load.open_reference` does.
    """
    if location is None:
        yield own
        return
    from dropbench.db.reference.load import open_reference

    with open_reference(location) as reference, merged(own, reference) as store:
        yield store


@contextlib.contextmanager
def merged(own: Store, reference: Store) -> Iterator[Store]:
    """Copy both databases into a temporary one."""
    from dropbench.db.reference.load import private_database

    engine = private_database()
    with disposed_on_error(engine), engine.begin() as target, reading(own.engine) as source:
        if own.engine.dialect.name == "sqlite":
            source_file: Any = source.connection.driver_connection
            source_file.backup(target.connection.driver_connection)
        target.exec_driver_sql("BEGIN")
        if own.engine.dialect.name != "sqlite":
            METADATA.create_all(target)
            for table in METADATA.sorted_tables:
                _copy(source, target, table)
        Details.metadata.create_all(target)
        with reading(reference.engine) as theirs:
            for table in (*METADATA.sorted_tables, *TABLES):
                if table is not Submissions:
                    _copy(theirs, target, table, prefix=PREFIX)
    with Store(engine) as store:
        yield store


def _copy(source: Connection, target: Connection, table: Any, prefix: str = "") -> None:
    """Copy the rows of a table; ids get a prefix, and lose their last character."""
    ids = {*_IDS} | ({"id"} if table in (Configs, Requests, Trials) else set())
    columns: list[Any] = []
    for column in table.columns:
        if prefix and column.name in ids:
            columns.append(literal(prefix) + func.substr(column, 1, 11))
        else:
            columns.append(cast(column, Text) if isinstance(column.type, JSON) else column)
    # Parsing JSON only to write it again, and passing parameters by name, would take half of the time.
    statement = str(insert(table).compile(dialect=target.dialect))
    result = source.execution_options(yield_per=BATCH_SIZE).execute(select(*columns))
    for rows in result.partitions(BATCH_SIZE):
        target.exec_driver_sql(statement, [tuple(row) for row in rows])
