"""Options, database access and output shared by the commands that print results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from harness.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from db.report.formats.listing import TextTable
    from db.store.store import Store
    from harness.settings import Settings

RowsFormat = Literal["table", "json", "md", "csv", "tex", "parquet"]
"""The formats of rows of results."""
Kind = TypeVar("Kind", bound=str)

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
    from db.reference.load import private_database
    from db.schema.connection import connect
    from db.schema.tables import METADATA
    from db.store.store import Store, open_store

    url = connect(settings.database).url
    if url.get_backend_name() != "sqlite" or not url.database or Path(url.database).exists():
        return open_store(settings.database)
    engine = private_database()
    METADATA.create_all(engine)  # Alembic takes longer
    return Store(engine)


def split(values: list[str] | None) -> list[str]:
    """Return the values of an option that may be repeated or separated by commas."""
    return [part for value in values or () for part in value.split(",") if part]


def show(draw: Callable[[Console], None], output: Path | None = None) -> None:
    """Print a table on the terminal, or write it to a file."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `harness.cli.main` handles it; rich would exit with code 1

    if output is None:
        return draw(PipeConsole(highlight=False))
    file = StringIO()
    draw(Console(file=file, width=120, highlight=False))
    return emit(file.getvalue().rstrip("\n"), output)


def emit(content: str | bytes, output: Path | None) -> None:
    """Print text, or write a file atomically."""
    from harness.files import write_atomic

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
    table: Callable[[], tuple[Sequence[str], TextTable, Sequence[str]]],
    empty: str,
) -> None:
    """Print rows; `table` returns their readable form: lines above, header and texts, lines below."""
    from db.report.formats import listing

    if kind == "parquet":
        return emit(listing.to_parquet(rows), output)
    if kind in ("json", "csv"):
        return emit(listing.to_json(rows) if kind == "json" else listing.to_csv(rows), output)
    above, texts, below = table()
    if kind in ("md", "tex"):
        return emit((listing.to_markdown if kind == "md" else listing.to_latex)(texts, above, below), output)
    if not rows:
        return emit(empty, output)
    if output is None:
        return listing.print_listing(texts, above, below)
    return emit(listing.to_text(texts, above, below), output)
