"""The commands `dropbench report` and `dropbench dashboard`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db.cli.output import Json, Output, With, emit, opened, show_suite_table
from harness.cli.completion import complete_suite
from harness.cli.examples import examples
from harness.errors import InputError, count_of
from harness.settings import Settings
from jobs.cli.last_request import last_request
from jobs.cli.options import TrialOptions, expand_options

if TYPE_CHECKING:
    from db.report.view.cells import CellTrials
    from db.report.view.view import View
    from db.store.store import Store

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
        str | None,
        typer.Argument(metavar="[SUITE]", help="A suite, or your own .yaml file.", autocompletion=complete_suite),
    ] = None,
    *,
    options: TrialOptions,
    last: Annotated[
        bool, typer.Option("--last", help="The suite and options of your last `run` or `enqueue`, without a SUITE.")
    ] = False,
    floors: Annotated[
        bool, typer.Option("--floors", help="Also the scores of simple predictors, computed once per data set.")
    ] = False,
    frozen: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with the pre-registration by `dropbench freeze`.")
    ] = None,
    peek: Annotated[
        bool, typer.Option("--peek", help="Test scores of a tuned preset even while candidates are unfinished.")
    ] = False,
    beside: With = None,
    kind: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print a suite's table next to the published one from the current results; trains nothing.

    Without options, the table is that of the trials that exist, if they all were run with the same options.
    """
    from db.report.formats import documents
    from db.report.view.beside import opened_beside
    from db.report.view.build import build_view
    from harness.cli.plain_text import plain
    from harness.suites.suite import load_suite
    from jobs.cli.trial_request import suite_options
    from jobs.queue.reconcile import refresh

    environment = Settings.from_environment()
    if last:
        if suite or options != TrialOptions():
            raise InputError("--last: it stands for a suite with options: expected no SUITE and no option of trials")
        suite, options = last_request(environment)
    if not suite:
        raise InputError(f"report: expected a SUITE or --last; {_suites_with_trials(environment)}")
    settings, choice = suite_options(options, environment)
    loaded = load_suite(suite)
    kind = "json" if as_json else kind
    if kind in ("png", "parquet") and output is None:
        raise InputError(f"--format {kind}: expected a file: -o PATH")
    with opened(settings) as own:
        refresh(own, settings)
        with opened_beside(loaded, choice, settings, own, beside) as (store, resolved):
            view = build_view(loaded, resolved.cells, store, settings, peek=peek)
            if frozen is not None:
                from db.report.view.preregistration import check

                lines = check(frozen, loaded, resolved.choice, resolved.cells, settings, store)
                view = dataclasses.replace(view, notices=(*lines, *view.notices))
            if floors:
                view = _with_floors(view, resolved.cells, settings)
            page = _html(view, store, settings) if kind == "html" else ""
    if kind == "html":
        emit(page, output)
    elif kind == "png":
        from db.report.figures.figures import figure

        emit(figure(view, settings.runs), output)
    elif kind == "table":
        show_suite_table(view, output)
    else:
        write: dict[str, Callable[[View], str | bytes]] = {
            "md": documents.as_markdown, "tex": documents.as_latex, "csv": documents.as_csv,
            "json": documents.as_json, "parquet": documents.as_parquet,
        }  # fmt: skip
        emit(write[kind](view), output)
    typer.echo("".join(f"{plain(note)}\n" for note in resolved.notes), nl=False, err=True)


@app.command(
    epilog=examples("freeze field/text --preset small -o field-text.yaml", "freeze dropattention/table3 --seeds 5")
)
@expand_options("task", "schedule")
def freeze(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A suite, or your own .yaml file.", autocompletion=complete_suite)
    ],
    *,
    options: TrialOptions,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print a pre-registration of a suite: cells, candidates, seeds, metrics and test; reads no test score."""
    from db.report.view.build import resolve_cells
    from db.report.view.preregistration import freeze as frozen_text
    from harness.suites.suite import load_suite
    from jobs.cli.trial_request import suite_options
    from jobs.queue.reconcile import refresh

    settings, choice = suite_options(options, Settings.from_environment())
    loaded = load_suite(suite)
    with opened(settings) as store:
        refresh(store, settings)
        cells = resolve_cells(loaded, choice, settings, store)
        emit(frozen_text(loaded, choice, cells, settings, store, as_json=as_json), output)
    swept = [cell.selection for cell in cells if cell.selection is not None]
    chosen = sum(selection.chosen is not None for selection in swept)
    text = f"chosen by dev: {chosen} of {count_of(len(swept), 'cell')}; no test score was read"
    typer.echo(text, err=True)


def _with_floors(view: View, cells: Iterable[CellTrials], settings: Settings) -> View:
    """Return the view with the floors of each data set and metric of its cells."""
    from tasks.floors.floors import floors

    found: dict[tuple[str, str], dict[str, float]] = {}
    for cell in cells:
        key = cell.cell.request.data, cell.cell.metric
        if key not in found and cell.trials:
            computed = floors(cell.trials[0], settings)
            found[key] = {floor.name: floor.value for floor in computed if floor.metric == cell.cell.metric}
    return dataclasses.replace(view, floors={key: values for key, values in found.items() if values})


def _html(view: View, store: Store, settings: Settings) -> str:
    from db.report.page.document import page

    return page(view, store, settings.runs)


def _suites_with_trials(settings: Settings) -> str:
    """Return the suites of the database as part of a message."""
    from db.schema.connection import reading
    from db.schema.tables import Memberships
    from db.store.filters import distinct_values

    with opened(settings) as store, reading(store.engine) as connection:
        names = distinct_values(connection, Memberships.c.suite)
    return f"the database has trials of {', '.join(names)}" if names else "the database has no trials of a suite"


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
