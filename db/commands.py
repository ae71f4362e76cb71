"""The commands `dropbench db upgrade`, `rebuild`, `export`, `import` and `sql`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from db.printing import Json, opened

app = typer.Typer(no_args_is_help=True)
db = typer.Typer(no_args_is_help=True, help="The database: upgrade, rebuild, export, import, query.")
app.add_typer(db, name="db")


class ExportFormat(StrEnum):
    """How tables are exported."""

    csv = "csv"
    parquet = "parquet"


@db.command()
def upgrade(as_json: Json = False) -> None:
    """Bring the database to this version; every command that opens it does so by itself."""
    from db.connection import connect, place
    from db.models import REVISION
    from db.schema import ensure
    from harness.settings import Settings

    engine = connect(Settings.from_environment().database)
    try:
        changed = ensure(engine)
    finally:
        engine.dispose()
    if as_json:
        typer.echo(json.dumps({"database": place(engine), "schema": REVISION, "upgraded": changed}))
    else:
        typer.echo(f"{place(engine)}: {'now' if changed else 'already'} at schema {REVISION}")


@db.command()
def rebuild(as_json: Json = False) -> None:
    """Make the database again from the run directories; what they do not know of stays as it is."""
    from rich.console import Console
    from rich.progress import Progress

    from db.rebuild import rebuild as rebuild_from
    from db.store import open_store
    from harness.settings import Settings

    settings = Settings.from_environment()
    with (
        open_store(settings.database) as store,
        Progress(console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty()) as bar,
    ):
        task = bar.add_task("reading", total=None)
        done = rebuild_from(store, settings.runs, lambda: bar.advance(task))
    for line in done.damaged:
        typer.echo(f"left out: {line}", err=True)
    if as_json:
        typer.echo(
            json.dumps(
                {"recorded": done.recorded, "damaged": done.damaged, "without_directory": done.without_directory}
            )
        )
        return
    typer.echo(f"{done.recorded} trials from {settings.runs}, {len(done.damaged)} damaged run directories left out")
    if done.without_directory:
        typer.echo(f"{done.without_directory} trials have no run directory there and stay as they were")


@db.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to; a file for each table.")],
    kind: Annotated[ExportFormat, typer.Option("--format", help="The kind of the files.")] = ExportFormat.csv,
    as_json: Json = False,
) -> None:
    """Write every table into a file of its own."""
    from db.export import export as write
    from harness.settings import Settings

    with opened(Settings.from_environment()) as store:
        files = write(store, folder, kind.value)
    if as_json:
        typer.echo(json.dumps([{"file": str(file), "rows": rows} for file, rows in files]))
    else:
        for file, rows in files:
            typer.echo(f"{file}: {rows} rows")


@db.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A database (a file or a URL), or a folder that db export wrote.")
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Where results differ, take those of SOURCE.")] = False,
    as_json: Json = False,
) -> None:
    """Take over results of another database; SOURCE is not changed, and doing it again does no harm."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import Progress

    from db.source import open_source
    from db.store import open_store
    from db.transfer import told, transfer
    from harness.settings import Settings

    settings = Settings.from_environment()
    with Progress(console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty()) as bar:
        reading = bar.add_task("reading", total=None)
        with open_source(source, settings.database, lambda: bar.advance(reading)) as opened:
            bar.update(reading, visible=False)
            taking = bar.add_task("importing", total=len(opened.ids()))
            with open_store(settings.database) as store:
                done = transfer(opened, store, overrule=replace, progress=lambda count: bar.advance(taking, count))
    if as_json:
        typer.echo(json.dumps(asdict(done), ensure_ascii=False))
    else:
        for line in told(done, replace):
            typer.echo(line, err=True)
        typer.echo(
            f"{done.added} trials are new, {done.updated} brought up to date, {done.unchanged} as they were;"
            f" {done.submissions} ended submissions are new"
        )
    if done.refused or (done.conflicts and not replace):
        raise typer.Exit(1)


@db.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="One statement that only reads.")],
    as_json: Json = False,
) -> None:
    """Ask in SQL; nothing can be changed. Views: v_trials, v_results, v_curves.

    Tables: configs, trials, memberships, submissions, attempts, metrics.
    """
    from rich.console import Console

    from db.export import query
    from db.report import listing
    from harness.settings import Settings

    names, rows = query(Settings.from_environment().database, statement)
    if as_json:
        typer.echo(listing.to_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        listing.print_table(listing.plain_table(names, rows), Console(highlight=False))
