"""Options, database access and output shared by the commands that print results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from dropbench.harness.errors import InputError

if TYPE_CHECKING:
    from dropbench.db.report.view.view import View
    from dropbench.db.store.store import Store
    from dropbench.harness.cli.text_table import TextTable
    from dropbench.harness.settings import Settings

RowsFormat = Literal["table", "json", "md", "csv", "tex", "parquet"]
"""The formats of rows of results."""
Kind = TypeVar("Kind", bound=str)
FILE_WIDTH = 120
"""Width of the table of a suite in a file."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
With = Annotated[
    str | None,
    typer.Option(
        "--with",
        metavar="reference|PATH",
        help="Also the results shipped with DropBench, or another such file, in rows of their own.",
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH", help="Write to this file.")]


def opened(settings: Settings) -> Store:
    """Open the database, or a private empty one if it does not exist: reading creates no file."""
    from dropbench.db.reference.load import private_database
    from dropbench.db.schema.tables import METADATA
    from dropbench.db.store.store import Store, open_store

    if _missing_file(settings) is None:
        return open_store(settings.database)
    engine = private_database()
    METADATA.create_all(engine)  # Alembic takes longer
    return Store(engine)


def note_missing_database(settings: Settings) -> None:
    """Print on standard error that the database that the user has named does not exist."""
    if settings.database != type(settings).database and (file := _missing_file(settings)):
        typer.echo(f"{file}: no database yet (DROPBENCH_DB): `dropbench run SUITE` creates it", err=True)


def _missing_file(settings: Settings) -> str | None:
    """Return the file of the database if it does not exist."""
    from dropbench.db.schema.connection import connect

    url = connect(settings.database).url
    is_file = url.get_backend_name() == "sqlite" and url.database
    return url.database if is_file and not Path(str(url.database)).exists() else None


def split(values: list[str] | None) -> list[str]:
    """Return the values of an option that may be repeated or separated by commas."""
    return [part for value in values or () for part in value.split(",") if part]


def show(table: TextTable, output: Path | None = None, width: int | None = None) -> None:
    """Print a table on the terminal, or write it to a file; `width` as for `to_text`."""
    from dropbench.harness.cli.table import print_table
    from dropbench.harness.cli.text_table import to_text

    if output is None:
        return print_table(table, width)
    return emit(to_text(table, width), output)


def show_suite_table(view: View, output: Path | None = None) -> None:
    """Print the table of a suite in the layout that fits the terminal, or write it to a file."""
    from dropbench.db.report.formats.layout import fitting_grid

    width = get_terminal_size().columns if output is None else FILE_WIDTH
    show(fitting_grid(view, width), output, width)


def emit(content: str | bytes, output: Path | None) -> None:
    """Print text, or write a file atomically."""
    from dropbench.harness.files import write_atomic

    if output is None:
        return typer.echo(content)
    try:
        if output.exists() and not output.is_file():
            raise OSError(0, "not a regular file")
        write_atomic(output, content if isinstance(content, bytes) else (content + "\n").encode())
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}: expected a file in a writable folder") from None


def checked_format(kind: Kind, output: Path | None, as_json: bool) -> Kind | Literal["json"]:
    """Return the format of the output; raise InputError for a binary one without a file."""
    if as_json:
        return "json"
    if kind in ("parquet", "png") and output is None:
        raise InputError(f"--format {kind}: expected a file: `-o PATH`")
    return kind


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    kind: RowsFormat,
    output: Path | None,
    table: Callable[[], TextTable],
    empty: str,
) -> None:
    """Print rows; `table` returns their readable form."""
    from dropbench.db.report.formats import writers

    if kind == "parquet":
        emit(writers.to_parquet(rows), output)
    elif kind in ("json", "csv"):
        emit((writers.to_json if kind == "json" else writers.to_csv)(rows), output)
    elif kind in ("md", "tex"):
        emit((writers.to_markdown if kind == "md" else writers.to_latex)(table()), output)
    elif not rows:
        emit(empty, output)
    else:
        show(table(), output)
