"""The commands on results: ``dropbench results``, ``report``, and ``db upgrade|rebuild|export|import|sql``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from db.store import Store
    from harness.settings import Settings

app = typer.Typer(no_args_is_help=True)
db = typer.Typer(no_args_is_help=True, help="The database: upgrade, rebuild, export, import, query.")
app.add_typer(db, name="db")

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH", help="Write it to this file.")]


class ResultsFormat(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    md = "md"
    csv = "csv"
    tex = "tex"
    parquet = "parquet"


class ReportFormat(StrEnum):
    """How a suite's table is printed."""

    table = "table"
    md = "md"
    tex = "tex"
    csv = "csv"
    json = "json"
    png = "png"


class ExportFormat(StrEnum):
    """How tables are exported."""

    csv = "csv"
    parquet = "parquet"


@app.command()
def results(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILTER", help="A suite, a state, the start of a trial's id, or KEY=VALUE; all must hold."
        ),
    ] = None,
    group_by: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Average over all but these keys, such as data or ratio.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Such as accuracy (of the test set), dev/accuracy, or all.")
    ] = None,
    kind: Annotated[ResultsFormat, typer.Option("--format", help="How to print it.")] = ResultsFormat.table,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Query metrics, averaged over seeds: one row a suite, configuration and metric."""
    from db.query import results as query
    from db.report import listing
    from harness.errors import InputError
    from harness.settings import Settings

    if as_json:
        kind = ResultsFormat.json
    if kind is ResultsFormat.parquet and output is None:
        raise InputError("--format parquet: expected a file: -o PATH")
    with _reading(Settings.from_environment()) as store:
        rows = query(store, words or (), metrics=_split(metric), group_by=_split(group_by))
    if kind is ResultsFormat.parquet:
        content: str | bytes = listing.to_parquet(rows)
    elif kind is ResultsFormat.json:
        content = listing.to_json(rows)
    elif kind is ResultsFormat.csv:
        content = listing.to_csv(rows)
    else:
        above, table = listing.results_table(rows)
        if kind is ResultsFormat.md:
            content = listing.to_markdown(table)
        elif kind is ResultsFormat.tex:
            content = listing.to_latex(table)
        elif rows:
            return _show(lambda console: listing.print_table(table, console, above), output)
        else:
            content = "no results: dropbench run SUITE makes some"
    _write(content, output)
    return None


@app.command()
def report(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a .yaml file of your own.")],
    preset: Annotated[str, typer.Option(help="The preset that was run.")] = "mini",
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds 0 to N-1; default: the preset's.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=PATH]", help="Only these data sets; where one lies.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these models.")] = None,
    regularizer: Annotated[
        list[str] | None, typer.Option(metavar="SPEC", help="One more row, such as dropkey:ratio=0.3.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A hyper-parameter that was changed.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="PATH", help="Initial weights that the trials were run with.")
    ] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUES", help="What cells choose from by their dev score.")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE,…", help="How that was searched: sampler=tpe,candidates=20."),
    ] = None,
    kind: Annotated[ReportFormat, typer.Option("--format", help="How to print it.")] = ReportFormat.table,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print a suite's table beside the published one, as it stands; trains nothing."""
    from db.report import ask, build_view, formats
    from db.report.terminal import print_table
    from harness.errors import InputError
    from harness.registry import load
    from harness.settings import Settings
    from harness.suite import Choice, load_suite
    from harness.sweep import parse_search, parse_space

    settings, names = load("jobs.request:with_folders")(Settings.from_environment(), data or ())
    found = load_suite(suite)
    choice = Choice(
        preset=preset,
        seeds=tuple(range(seeds or 0)),
        data=tuple(names),
        models=tuple(model or ()),
        regularizers=tuple(regularizer or ()),
        overrides=load("jobs.request:parse_overrides")(overrides or ()),
        weights=weights,
        sweep=parse_space(sweep) if sweep else None,
        search=parse_search(search) if search else None,
    )
    kind = ReportFormat.json if as_json else kind
    if kind is ReportFormat.png and output is None:
        raise InputError("--format png: expected a file: -o PATH")
    with _reading(settings) as store:
        view = build_view(found, ask(found, choice, settings, store), store)
    if kind is ReportFormat.png:
        return _write(load("db.report.figures:figure")(view, settings.runs), output)
    if kind is ReportFormat.table:
        return _show(lambda console: print_table(view, console), output)
    write = {
        ReportFormat.md: formats.as_markdown,
        ReportFormat.tex: formats.as_latex,
        ReportFormat.csv: formats.as_csv,
        ReportFormat.json: formats.as_json,
    }[kind]
    _write(write(view), output)
    return None


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

    with _reading(Settings.from_environment()) as store:
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
    """Ask in SQL; nothing can be changed. Tables: configs, trials, memberships, submissions, attempts, metrics."""
    from rich.console import Console

    from db.export import query
    from db.report import listing
    from harness.settings import Settings

    names, rows = query(Settings.from_environment().database, statement)
    if as_json:
        typer.echo(listing.to_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        listing.print_table(listing.plain_table(names, rows), Console(highlight=False))


def _reading(settings: Settings) -> Store:
    """The database; where there is none yet an empty one in memory, because looking makes no file."""
    from db.connection import connect
    from db.store import open_store

    url = connect(settings.database).url
    absent = url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists()
    return open_store("sqlite://" if absent else settings.database)


def _split(values: list[str] | None) -> list[str]:
    """Options given more than once, or with commas."""
    return [part for value in values or () for part in value.split(",") if part]


def _show(draw: Callable[[Console], None], output: Path | None) -> None:
    """Draw a table on the terminal, or into a file."""
    from rich.console import Console

    if output is None:
        return draw(Console(highlight=False))
    file = StringIO()
    draw(Console(file=file, width=120, highlight=False))
    return _write(file.getvalue().rstrip("\n"), output)


def _write(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write a whole file."""
    from harness.errors import InputError
    from harness.files import write_atomic

    if output is None:
        return typer.echo(content)
    try:
        write_atomic(output, content if isinstance(content, bytes) else (content + "\n").encode())
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}: expected a file in a folder that may be written") from None
