"""Load exported files into a temporary database, validating every cell."""

from __future__ import annotations

import csv
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, Table, create_engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import StaticPool

from db.schema.connection import disposed_on_error, translate_errors
from db.schema.tables import METADATA, Configs, Trials
from db.store.rows import chunks
from db.transfer.export import BATCH_SIZE, import_pyarrow
from harness.errors import InputError, unknown_name
from harness.files import open_regular

Progress = Callable[[], None]

Cells = tuple[Any, ...]

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")

_MAX_CELL_LENGTH = 2**26
"""In characters; Python's default limit is shorter than a long message."""

_DESCRIPTIONS = {int: "a whole number", float: "a finite number", str: "text"}


def load_export(folder: Path, progress: Progress) -> Engine:
    """Read a folder of exported files into a temporary database, which is deleted with the engine.

    Args:
        folder: with a file per table, as `db.transfer.export.export` writes them.
        progress: called repeatedly meanwhile.

    Raises:
        InputError: a file is missing, damaged, or has an invalid cell; the message names the place.
    """
    formats = [suffix for suffix in ("csv", "parquet") if (folder / f"{Trials.name}.{suffix}").is_file()]
    if len(formats) != 1:
        files = "trials.csv and trials.parquet" if formats else "no trials.csv or trials.parquet"
        raise InputError(f"{folder}: {files}: expected one of them, as `dropbench db export` writes it")
    # A database without a name is a file that SQLite has deleted already: it disappears however this process ends.
    private = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    private.execute("PRAGMA synchronous = OFF")
    engine = create_engine("sqlite://", creator=lambda: private, poolclass=StaticPool)
    with disposed_on_error(engine), translate_errors(engine), engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        METADATA.create_all(connection)
        for table in METADATA.sorted_tables:
            fill(connection, table, folder / f"{table.name}.{formats[0]}", progress)
        for table in METADATA.sorted_tables:
            _check_references(connection, table, folder, formats[0])
        connection.commit()
    return engine


def fill(connection: Connection, table: Table, file: Path, progress: Progress) -> None:
    """Insert the rows of a file into its table; errors as in `load_export`."""
    read = _csv if file.suffix == ".csv" else _parquet
    placeholders = ", ".join("?" * len(table.columns))
    statement = f"INSERT INTO {table.name} VALUES ({placeholders})"
    key = ", ".join(column.name for column in table.primary_key)
    try:
        open_regular(file).close()
        for rows in chunks(read(table, file), BATCH_SIZE):
            try:
                connection.exec_driver_sql(statement, [cells for _, cells in rows])
            except IntegrityError:
                raise InputError(
                    f"{file}: between {rows[0][0]} and {rows[-1][0]}: two rows have the same {key}: expected one"
                ) from None
            progress()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}: expected a file of `dropbench db export`") from None
    except UnicodeError:
        raise InputError(f"{file}: not UTF-8: expected a file of `dropbench db export`") from None


def _csv(table: Table, file: Path) -> Iterator[tuple[str, Cells]]:
    """Yield the rows, each with its position for messages."""
    limit = csv.field_size_limit(_MAX_CELL_LENGTH)
    try:
        with file.open(newline="", encoding="utf-8-sig") as content:
            reader = csv.reader(content, strict=True)
            given = next(reader, [])
            header = _header(table, file, given)
            order = [header.index(column.name) for column in table.columns]
            parsers = [(_parser(column), index) for column, index in zip(table.columns, order, strict=True)]
            for row in reader:
                position = f"line {reader.line_num}"
                if len(row) != len(given):
                    raise InputError(f"{file}, {position}: {len(row)} values: expected {len(given)}")
                row += [""] * (len(header) - len(given))
                try:
                    cells = tuple([parse(row[index]) for parse, index in parsers])
                except _InvalidCellError as invalid:
                    column, text = invalid.args
                    raise _invalid(column, text, file, position) from None
                yield position, cells
    except csv.Error as error:
        raise InputError(f"{file}: not valid CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


class _InvalidCellError(ValueError):
    """A cell does not fit its column; the arguments are the column and the text."""


def _parser(column: Column[Any]) -> Callable[[str], Any]:
    """Return the function that parses the cells of a column; an empty cell is NULL if the column is nullable."""
    type_, is_nullable = _cell_type(column), column.nullable
    if type_ is str:
        return (lambda text: text or None) if is_nullable else str
    pattern = _WHOLE if type_ is int else _NUMBER

    def parse(text: str) -> Any:
        if not text and is_nullable:
            return None
        if pattern.fullmatch(text) and math.isfinite(value := type_(text)):
            return value
        raise _InvalidCellError(column, text)

    return parse


def _parquet(table: Table, file: Path) -> Iterator[tuple[str, Cells]]:
    pyarrow, parquet = import_pyarrow()
    columns = list(table.columns)
    try:
        with parquet.ParquetFile(file) as content:
            header = _header(table, file, content.schema_arrow.names)
            order = [header.index(column.name) for column in columns]
            batches = content.iter_batches(BATCH_SIZE)
            lists = ([*(column.to_pylist() for column in batch.columns), [None] * len(batch)] for batch in batches)
            rows = (zip(*(values[index] for index in order), strict=True) for values in lists)
            for number, row in enumerate(chain.from_iterable(rows), 1):
                position, cells = f"row {number}", zip(columns, row, strict=True)
                yield position, tuple(_checked(column, value, file, position) for column, value in cells)
    except (pyarrow.ArrowException, ValueError) as error:
        raise InputError(f"{file}: not valid Parquet: {' '.join(str(error).split())}") from None


def _checked(column: Column[Any], value: Any, file: Path, position: str) -> Any:
    """Return a value of a Parquet file if it fits its column."""
    type_ = _cell_type(column)
    if value is None and column.nullable:
        return None
    valid = isinstance(value, type_) and not isinstance(value, bool)
    # Parquet's integers may be unsigned.
    if not valid or (type_ is float and not math.isfinite(value)) or (type_ is int and abs(value) >= 2**63):
        raise _invalid(column, value, file, position)
    return value


@cache
def _cell_type(column: Column[Any]) -> type:
    """Return the type that a cell is read as; JSON remains text."""
    type_ = column.type.python_type
    return type_ if type_ in (int, float) else str


def _invalid(column: Column[Any], value: Any, file: Path, position: str) -> InputError:
    text = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
    expected = _DESCRIPTIONS[_cell_type(column)] + (", or nothing" if column.nullable else "")
    return InputError(f"{file}, {position}: {column.name} = {text}: expected {expected}")


def _header(table: Table, file: Path, header: list[str]) -> list[str]:
    """Return the names of a file's columns if they are exactly the table's."""
    names = [column.name for column in table.columns]
    for name in names:
        if header.count(name) != 1:
            problem = "no column" if name not in header else "duplicate column"
            raise InputError(f"{file}: {problem} '{name}': expected those of `dropbench db export`: {', '.join(names)}")
    for name in header:
        if name not in names:
            raise unknown_name(f"column of {file}", name if name.isprintable() else ascii(name), names)
    return header


def _check_references(connection: Connection, table: Table, folder: Path, suffix: str) -> None:
    """Raise InputError unless every row's trial, and every trial's configuration, is in the export."""
    for name, other in (("trial_id", Trials), ("config_id", Configs)):
        if name in table.columns:
            column = table.columns[name]
            missing = connection.scalar(select(column).where(column.not_in(select(other.c.id))).limit(1))
            if missing is not None:
                file, other_file = f"{table.name}.{suffix}", f"{other.name}.{suffix}"
                raise InputError(f"{folder / file}: {name} = {missing!r}: expected one of {other_file}")
