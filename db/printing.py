"""What the commands on results share: their options, the database to look at, and where what they print goes."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from db.store import Store
    from harness.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH", help="Write it to this file.")]


def opened(settings: Settings) -> Store:
    """The database; where there is none yet an empty one in memory, because looking makes no file."""
    from db.connection import connect
    from db.store import open_store

    url = connect(settings.database).url
    absent = url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists()
    return open_store("sqlite://" if absent else settings.database)


def split(values: list[str] | None) -> list[str]:
    """Options given more than once, or with commas."""
    return [part for value in values or () for part in value.split(",") if part]


def show(draw: Callable[[Console], None], output: Path | None) -> None:
    """Draw a table on the terminal, or into a file."""
    from rich.console import Console

    if output is None:
        return draw(Console(highlight=False))
    file = StringIO()
    draw(Console(file=file, width=120, highlight=False))
    return emit(file.getvalue().rstrip("\n"), output)


def emit(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write a whole file."""
    from harness.errors import InputError
    from harness.files import write_atomic

    if output is None:
        return typer.echo(content)
    try:
        write_atomic(output, content if isinstance(content, bytes) else (content + "\n").encode())
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}: expected a file in a folder that may be written") from None
