"""The commands `dropbench report` and `dropbench dashboard`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from db.cli.output import Json, Output, emit, opened, show
from jobs.cli.options import Data, Model, Override, Preset, Search, Seeds, Spec, Sweep, Weights

if TYPE_CHECKING:
    from db.report.view.view import View

app = typer.Typer(no_args_is_help=True)


class ReportFormat(StrEnum):
    """The formats of a suite's table."""

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
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite, or your own .yaml file.")],
    preset: Preset = "mini",
    seeds: Seeds = None,
    data: Data = None,
    model: Model = None,
    regularizer: Spec = None,
    overrides: Override = None,
    weights: Weights = None,
    sweep: Sweep = None,
    search: Search = None,
    kind: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = ReportFormat.table,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print a suite's table next to the published one from the current results; trains nothing."""
    from db.report.formats import documents
    from db.report.view.build import build_view, resolve_cells
    from harness.errors import InputError
    from harness.settings import Settings
    from harness.suites.suite import load_suite
    from jobs.queue.trial_request import Options

    options = Options(
        preset, seeds, data or (), model or (), regularizer or (), overrides or (), weights=weights,
        sweep=sweep or (), search=search,
    )  # fmt: skip
    settings, choice = options.to_choice(Settings.from_environment())
    loaded = load_suite(suite)
    kind = ReportFormat.json if as_json else kind
    if kind in (ReportFormat.png, ReportFormat.parquet) and output is None:
        raise InputError(f"--format {kind.value}: expected a file: -o PATH")
    with opened(settings) as store:
        view = build_view(loaded, resolve_cells(loaded, choice, settings, store), store, settings)
        if kind is ReportFormat.html:
            from db.report.page.document import page

            return emit(page(view, store, settings.runs), output)
    if kind is ReportFormat.png:
        from db.report.figures.figures import figure

        return emit(figure(view, settings.runs), output)
    if kind is ReportFormat.table:
        from db.report.formats.terminal import print_suite_table

        return show(lambda console: print_suite_table(view, console), output)
    write: dict[ReportFormat, Callable[[View], str | bytes]] = {
        ReportFormat.md: documents.as_markdown,
        ReportFormat.tex: documents.as_latex,
        ReportFormat.csv: documents.as_csv,
        ReportFormat.json: documents.as_json,
        ReportFormat.parquet: documents.as_parquet,
    }
    emit(write[kind](view), output)
    return None


@app.command()
def dashboard(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port on this machine; 0: any free port.")
    ] = 8642,
) -> None:
    """Serve live web pages of the database to this machine only; changes nothing. Stop it by Ctrl-C."""
    from db.report.dashboard.app import serve
    from harness.settings import Settings
    from jobs.queue.activity import activity

    serve(
        Settings.from_environment(),
        port,
        activity,
        lambda address: typer.echo(f"dashboard: {address} (stop by Ctrl-C)"),
    )
