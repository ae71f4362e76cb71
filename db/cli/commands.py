"""The commands `dropbench db rebuild`, `export`, `import` and `sql`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dropbench.db.cli.output import Json, opened
from dropbench.harness.cli.examples import examples
from dropbench.harness.errors import count_of
from dropbench.harness.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

app = typer.Typer(no_args_is_help=True)
db = typer.Typer(no_args_is_help=True, help="The database: rebuild, export, import, query.")
app.add_typer(db, name="db")


def _progress_bar(as_json: bool) -> Progress:
    """Return a progress bar on standard error, hidden with `--json` and without a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty())


@db.command(epilog=examples("db rebuild"))
def rebuild(as_json: Json = False) -> None:
    """Make the database again from the run directories and requests, and put it in the place of the old one.

    What they do not have, such as queued trials, is taken from the old one, which is renamed to NAME.old-TIME.
    """
    from dropbench.db.transfer.rebuild import rebuild_database

    settings = Settings.from_environment()
    with _progress_bar(as_json) as bar:
        task = bar.add_task("reading", total=None)
        summary = rebuild_database(settings.database, settings.runs, lambda: bar.advance(task))
    for kind in ("damaged", "left_out", "kept"):
        for line in getattr(summary, kind):
            typer.echo(f"{kind.replace('_', ' ')}: {line}", err=True)
    if as_json:
        typer.echo(json.dumps(asdict(summary)))
        return
    recorded = f"{count_of(summary.recorded, 'trial')} and {count_of(summary.requests, 'request')}"
    typer.echo(f"Recorded {recorded} from {settings.runs}, {count_of(len(summary.damaged), 'damaged file')}.")
    if summary.without_directory:
        trials = count_of(summary.without_directory, "trial")
        typer.echo(f"{trials} without a run directory are as they were in the previous database.")
    if summary.without_request:
        typer.echo(f"No request in {settings.runs}/requests names {count_of(summary.without_request, 'trial')}.")
    if summary.missing:
        typer.echo(f"{count_of(summary.missing, 'trial')} of requests are nowhere: enqueue their suites again.")
    if summary.previous:
        typer.echo(f"The previous database is {summary.previous}.")


@db.command(epilog=examples("db export tables", "db export tables --format parquet"))
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Target folder; one file per table.")],
    kind: Annotated[Literal["csv", "parquet"], typer.Option("--format", help="File format.")] = "csv",
    as_json: Json = False,
) -> None:
    """Write every table to its own file."""
    from dropbench.db.transfer.export import export as write

    with opened(Settings.from_environment()) as store:
        files = write(store, folder, kind)
    if as_json:
        typer.echo(json.dumps([{"file": str(file), "rows": rows} for file, rows in files]))
    else:
        for file, rows in files:
            typer.echo(f"{file}: {count_of(rows, 'row')}")


@db.command("import", epilog=examples("db import colleague.db", "db import colleague.db --replace"))
def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A database: a file or a URL.")],
    replace: Annotated[bool, typer.Option("--replace", help="If results differ, take those of SOURCE.")] = False,
    as_json: Json = False,
) -> None:
    """Import results of another database. SOURCE does not change; importing it again is safe."""
    from dropbench.db.store.store import open_store
    from dropbench.db.transfer.merge import messages, transfer
    from dropbench.db.transfer.source import open_source

    settings = Settings.from_environment()
    with _progress_bar(as_json) as bar, open_source(source, settings.database) as other:
        importing = bar.add_task("importing", total=len(other.ids()))
        with open_store(settings.database) as store:
            summary = transfer(other, store, replace, lambda count: bar.advance(importing, count))
    if as_json:
        typer.echo(json.dumps(asdict(summary), ensure_ascii=False))
    else:
        for line in messages(summary, replace):
            typer.echo(line, err=True)
        typer.echo(
            f"Added {count_of(summary.added, 'trial')}, updated {summary.updated}, {summary.unchanged} unchanged;"
            f" added {count_of(summary.submissions, 'ended submission')}."
        )
    if summary.refused or (summary.conflicts and not replace):
        raise typer.Exit(1)


@db.command(epilog=examples("db sql 'SELECT state, count(*) FROM trials GROUP BY state'"))
def sql(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="One statement that only reads.")],
    as_json: Json = False,
) -> None:
    """Run a read-only SQL query. Views: v_trials, v_results, v_curves, v_suites.

    Tables: configs, trials, requests, memberships, submissions, attempts, metrics.
    """
    from dropbench.db.report.formats.listing import text_table
    from dropbench.db.report.formats.writers import to_json
    from dropbench.db.transfer.export import query
    from dropbench.harness.cli.table import print_table

    names, rows = query(Settings.from_environment().database, statement)
    if as_json:
        typer.echo(to_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        print_table(text_table(names, rows))
