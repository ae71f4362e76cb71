"""The commands `dropbench report` and `dropbench dashboard`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db.cli.output import Json, Output, emit, opened, show
from harness.cli.completion import complete_suite
from harness.cli.examples import examples
from harness.errors import InputError
from harness.settings import Settings
from jobs.cli.options import TrialOptions, expand_options

if TYPE_CHECKING:
    from db.report.view.view import View

app = typer.Typer(no_args_is_help=True)

ReportFormat = Literal["table", "md", "tex", "csv", "json", "parquet", "html", "png"]
"""The formats of a suite's table."""


@app.command(
    epilog=examples(
        "report quickstart",
        "report dropkey/table1 --preset paper",
        "report dropkey/table1 --format html -o table1.html",
    )
)
@expand_options("task", "schedule")
def report(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A suite, or your own .yaml file.", autocompletion=complete_suite)
    ],
    options: TrialOptions,
    kind: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print a suite's table next to the published one from the current results; trains nothing."""
    from db.report.formats import documents
    from db.report.view.build import build_view, resolve_cells
    from harness.suites.suite import load_suite
    from jobs.cli.trial_request import suite_options

    settings, choice = suite_options(options, Settings.from_environment())
    loaded = load_suite(suite)
    kind = "json" if as_json else kind
    if kind in ("png", "parquet") and output is None:
        raise InputError(f"--format {kind}: expected a file: -o PATH")
    with opened(settings) as store:
        view = build_view(loaded, resolve_cells(loaded, choice, settings, store), store, settings)
        if kind == "html":
            from db.report.page.document import page

            return emit(page(view, store, settings.runs), output)
    if kind == "png":
        from db.report.figures.figures import figure

        return emit(figure(view, settings.runs), output)
    if kind == "table":
        from db.report.formats.terminal import print_suite_table

        return show(lambda console: print_suite_table(view, console), output)
    write: dict[str, Callable[[View], str | bytes]] = {
        "md": documents.as_markdown, "tex": documents.as_latex, "csv": documents.as_csv,
        "json": documents.as_json, "parquet": documents.as_parquet,
    }  # fmt: skip
    return emit(write[kind](view), output)


@app.command(epilog=examples("dashboard", "dashboard --port 0"))
def dashboard(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port on this machine; 0: any free port.")
    ] = 8642,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve live web pages of the database to this machine only; changes nothing. Stop it by Ctrl-C."""
    from db.report.dashboard.app import serve
    from jobs.queue.status import activity

    settings = Settings.from_environment()

    def show_address(address: str) -> None:
        typer.echo(json.dumps({"address": address}) if as_json else f"dashboard: {address} (stop by Ctrl-C)")

    serve(settings, port, activity, show_address)
