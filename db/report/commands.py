"""The commands `dropbench report` and `dropbench dashboard`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from db.printing import Json, Output, emit, opened, show

if TYPE_CHECKING:
    from db.report.view import View

app = typer.Typer(no_args_is_help=True)


class ReportFormat(StrEnum):
    """How a suite's table is printed."""

    table = "table"
    md = "md"
    tex = "tex"
    csv = "csv"
    json = "json"
    parquet = "parquet"
    html = "html"
    png = "png"


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
    if kind in (ReportFormat.png, ReportFormat.parquet) and output is None:
        raise InputError(f"--format {kind.value}: expected a file: -o PATH")
    with opened(settings) as store:
        view = build_view(found, ask(found, choice, settings, store), store, settings)
        if kind is ReportFormat.html:
            return emit(load("db.report.page:page")(view, store, settings.runs), output)
    if kind is ReportFormat.png:
        return emit(load("db.report.figures:figure")(view, settings.runs), output)
    if kind is ReportFormat.table:
        return show(lambda console: print_table(view, console), output)
    write: dict[ReportFormat, Callable[[View], str | bytes]] = {
        ReportFormat.md: formats.as_markdown,
        ReportFormat.tex: formats.as_latex,
        ReportFormat.csv: formats.as_csv,
        ReportFormat.json: formats.as_json,
        ReportFormat.parquet: formats.as_parquet,
    }
    emit(write[kind](view), output)
    return None


@app.command()
def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Of this machine; 0: any free one.")] = 8642,
) -> None:
    """Serve the database as pages that follow what runs, for this machine alone; changes nothing. Ctrl-C ends it."""
    from db.report.dashboard.app import serve
    from harness.settings import Settings

    serve(Settings.from_environment(), port, lambda address: typer.echo(f"dashboard: {address} (Ctrl-C ends it)"))
