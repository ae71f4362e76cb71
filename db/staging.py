"""Exported files, checked cell by cell and put into a database of their own for as long as they are read."""

from __future__ import annotations

import csv
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, Table, create_engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import StaticPool

from db.connection import translated
from db.export import ROWS
from db.models import METADATA, Configs, Trials
from db.rows import chunks
from harness.errors import InputError, unknown_name

Step = Callable[[], None]

Cells = tuple[Any, ...]

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")

_LONGEST = 2**26
"""Characters of a cell; Python's own limit is less than a long message."""

_SAYS = {int: "a whole number", float: "a finite number", str: "text"}


def stage(folder: Path, step: Step) -> Engine:
    """Read a folder of exported files into a temporary database, gone with the engine.

    Args:
        folder: with a file for each table, as `db.export.export` writes them.
        step: called again and again meanwhile.

    Raises:
        InputError: a file is missing, damaged, or holds what such a file cannot; the message says where.
    """
    kinds = [kind for kind in ("csv", "parquet") if (folder / f"{Trials.name}.{kind}").exists()]
    if len(kinds) != 1:
        has = "trials.csv and trials.parquet" if kinds else "no trials.csv or trials.parquet"
        raise InputError(f"{folder}: {has}: expected one of them, as dropbench db export writes it")
    # Without a name it is a file of SQLite's own, already deleted: nothing is left, however this process ends.
    private = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    private.execute("PRAGMA synchronous = OFF")
    engine = create_engine("sqlite://", creator=lambda: private, poolclass=StaticPool)
    try:
        with translated(engine), engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            METADATA.create_all(connection)
            for table in METADATA.sorted_tables:
                _fill(connection, table, folder / f"{table.name}.{kinds[0]}", step)
            for table in METADATA.sorted_tables:
                _check_references(connection, table, folder, kinds[0])
            connection.commit()
    except BaseException:
        engine.dispose()
        raise
    return engine


def _fill(connection: Connection, table: Table, file: Path, step: Step) -> None:
    read = _csv if file.suffix == ".csv" else _parquet
    places = ", ".join("?" * len(table.columns))
    statement = f"INSERT INTO {table.name} VALUES ({places})"
    key = ", ".join(column.name for column in table.primary_key)
    try:
        for rows in chunks(read(table, file), ROWS):
            try:
                connection.exec_driver_sql(statement, [cells for _, cells in rows])
            except IntegrityError:
                raise InputError(
                    f"{file}: between {rows[0][0]} and {rows[-1][0]}: two rows have the same {key}: expected one"
                ) from None
            step()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}: expected a file that dropbench db export wrote") from None
    except UnicodeError:
        raise InputError(f"{file}: no UTF-8: expected a file that dropbench db export wrote") from None


def _csv(table: Table, file: Path) -> Iterator[tuple[str, Cells]]:
    """The rows, each with the words for where it is."""
    limit = csv.field_size_limit(_LONGEST)
    try:
        with file.open(newline="", encoding="utf-8-sig") as content:
            reader = csv.reader(content, strict=True)
            header = next(reader, [])
            _check_header(table, file, header)
            order = [header.index(column.name) for column in table.columns]
            columns = list(table.columns)
            for row in reader:
                where = f"line {reader.line_num}"
                if len(row) != len(header):
                    raise InputError(f"{file}, {where}: {len(row)} values: expected {len(header)}")
                yield (
                    where,
                    tuple(
                        _parse(column, row[index], file, where) for column, index in zip(columns, order, strict=True)
                    ),
                )
    except csv.Error as error:
        raise InputError(f"{file}: no valid CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _parse(column: Column[Any], text: str, file: Path, where: str) -> Any:
    """A cell of a CSV file; an empty one is NULL where the table allows that."""
    kind = _kind(column)
    if not text and column.nullable:
        return None
    if kind is str:
        return text
    if (_WHOLE if kind is int else _NUMBER).fullmatch(text) and math.isfinite(value := kind(text)):
        return value
    raise _wrong(column, text, file, where)


def _parquet(table: Table, file: Path) -> Iterator[tuple[str, Cells]]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("Parquet needs the package pyarrow: pip install pyarrow") from None
    columns = list(table.columns)
    row = 0
    try:
        with parquet.ParquetFile(file) as content:
            _check_header(table, file, content.schema_arrow.names)
            for batch in content.iter_batches(ROWS, columns=[column.name for column in columns]):
                values = [batch.column(column.name).to_pylist() for column in columns]
                for cells in zip(*values, strict=True):
                    row += 1
                    yield (
                        f"row {row}",
                        tuple(
                            _checked(column, value, file, f"row {row}")
                            for column, value in zip(columns, cells, strict=True)
                        ),
                    )
    except (pyarrow.ArrowException, ValueError) as error:
        raise InputError(f"{file}: no valid Parquet: {' '.join(str(error).split())}") from None


def _checked(column: Column[Any], value: Any, file: Path, where: str) -> Any:
    """A value of a Parquet file."""
    kind = _kind(column)
    if value is None and column.nullable:
        return None
    sound = isinstance(value, kind) and not isinstance(value, bool)
    if isinstance(value, float):
        sound = sound and math.isfinite(value)
    elif isinstance(value, int):
        sound = sound and abs(value) < 2**63  # Parquet's may be unsigned
    if not sound:
        raise _wrong(column, value, file, where)
    return value


def _kind(column: Column[Any]) -> type:
    """What a cell of it is read as: JSON stays text until somebody needs it."""
    kind = column.type.python_type
    return kind if kind in (int, float) else str


def _wrong(column: Column[Any], value: Any, file: Path, where: str) -> InputError:
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
    expected = _SAYS[_kind(column)] + (", or nothing" if column.nullable else "")
    return InputError(f"{file}, {where}: {column.name} = {shown}: expected {expected}")


def _check_header(table: Table, file: Path, header: list[str]) -> None:
    names = [column.name for column in table.columns]
    for name in names:
        if header.count(name) != 1:
            has = "no column" if name not in header else "twice the column"
            raise InputError(f"{file}: {has} '{name}': expected those of dropbench db export: {', '.join(names)}")
    for name in header:
        if name not in names:
            raise unknown_name(f"column of {file}", name if name.isprintable() else ascii(name), names)


def _check_references(connection: Connection, table: Table, folder: Path, kind: str) -> None:
    """Every row belongs to a trial, and every trial to a configuration, that is there too."""
    for name, other in (("trial_id", Trials), ("config_id", Configs)):
        if name in table.columns:
            column = table.columns[name]
            lost = connection.scalar(select(column).where(column.not_in(select(other.c.id))).limit(1))
            if lost is not None:
                file, others = f"{table.name}.{kind}", f"{other.name}.{kind}"
                raise InputError(f"{folder / file}: {name} = {lost!r}: expected one that is in {others}")
