"""The commands `dropbench report` and `dropbench dashboard`."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dropbench.db.cli.output import Json, Output, With, emit, note_missing_database, show_suite_table
from dropbench.harness.cli.completion import complete_suite
from dropbench.harness.cli.examples import examples
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import canonical_json
from dropbench.harness.settings import Settings
from dropbench.jobs.cli.options import ShownData, ShownModel, ShownPreset, ShownRequest, with_folders

if TYPE_CHECKING:
    from dropbench.db.report.view.cells import CellTrials
    from dropbench.db.report.view.requests import SuiteTable
    from dropbench.db.report.view.view import View
    from dropbench.db.store.store import Store
    from dropbench.tasks.floors.floor import Floor

    Computed = tuple[dict[str, Any], list[Floor]]

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
def report(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="[SUITE]", help="A suite, or your own .yaml file.", autocompletion=complete_suite),
    ] = None,
    *,
    preset: ShownPreset = None,
    data: ShownData = None,
    model: ShownModel = None,
    request: ShownRequest = None,
    floors: Annotated[
        bool, typer.Option("--floors", help="Also the scores of simple predictors, computed once per data set.")
    ] = False,
    freeze: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a pre-registration instead; reads no test score.")
    ] = None,
    frozen: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with the pre-registration by --freeze.")
    ] = None,
    peek: Annotated[
        bool, typer.Option("--peek", help="Test scores of a tuned preset even while candidates are unfinished.")
    ] = False,
    beside: With = None,
    kind: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print the table of a suite's trials next to the published one; trains nothing.

    It has the cells of all requests (by `run`, `enqueue`) that train alike, each of the newest. Data are not needed.
    """
    from dropbench.db.report.view.build import build_view
    from dropbench.harness.cli.plain_text import plain
    from dropbench.jobs.cli.suite_table import suite_table
    from dropbench.jobs.queue.reconcile import opened_results

    settings, names = with_folders(Settings.from_environment(), data)
    kind = "json" if as_json else kind
    if kind in ("png", "parquet") and output is None:
        raise InputError(f"--format {kind}: expected a file: -o PATH")
    with opened_results(settings, beside) as store:
        table = suite_table(store, suite, preset, request, data=names, models=model or ())
        if freeze is not None:
            _freeze(table, store, freeze)
            return
        view = build_view(table, store, settings.runs, peek=peek)
        if frozen is not None:
            from dropbench.db.report.view.preregistration import check

            view = dataclasses.replace(view, notices=(*check(frozen, table), *view.notices))
        if floors:
            view = _with_floors(view, table.cells, store, settings)
        _emit(view, kind, output, store, settings)
    typer.echo("".join(f"{plain(note)}\n" for note in table.notes), nl=False, err=True)
    note_missing_database(settings)


def _emit(view: View, kind: ReportFormat, output: Path | None, store: Store, settings: Settings) -> None:
    """Print a table in a format."""
    from dropbench.db.report.formats import documents

    if kind == "html":
        from dropbench.db.report.page.document import page

        emit(page(view, store, settings.runs), output)
    elif kind == "png":
        from dropbench.db.report.figures.figures import figure

        emit(figure(view, settings.runs), output)
    elif kind == "table":
        show_suite_table(view, output)
    else:
        write: dict[str, Callable[[View], str | bytes]] = {
            "md": documents.as_markdown, "tex": documents.as_latex, "csv": documents.as_csv,
            "json": documents.as_json, "parquet": documents.as_parquet,
        }  # fmt: skip
        emit(write[kind](view), output)


def _freeze(table: SuiteTable, store: Store, file: Path) -> None:
    """Write the pre-registration of a table."""
    from dropbench.db.report.view.preregistration import freeze

    emit(freeze(table, store), file)
    swept = [cell.selection for cell in table.cells if cell.selection is not None]
    chosen = sum(selection.chosen is not None for selection in swept)
    typer.echo(f"chosen by dev: {chosen} of {count_of(len(swept), 'cell')}; no test score was read", err=True)


def _with_floors(view: View, cells: Iterable[CellTrials], store: Store, settings: Settings) -> View:
    """Return the view with the floors of its cells by data set and metric: those of all initial weights and sizes."""
    from dropbench.tasks.floors.floors import floors, read_by_floors

    measured = [(cell, id) for cell in cells if cell.cell.analysis is None for id in cell.ids[:1]]
    trials = store.trials([id for _, id in measured])
    computed: dict[str, Computed] = {}
    found: defaultdict[tuple[str, str], dict[str, Computed]] = defaultdict(dict)
    for cell, trial in ((cell, trials[id]) for cell, id in measured if id in trials):
        read = read_by_floors(trial)
        if (key := canonical_json(read)) not in computed:
            computed[key] = read, floors(trial, settings)
        found[cell.cell.request.data, cell.cell.metric][key] = computed[key]
    named = {column: named_floors(column[1], list(own.values())) for column, own in found.items()}
    return dataclasses.replace(view, floors=named)


def named_floors(metric: str, computed: Sequence[Computed]) -> dict[str, float]:
    """Return floors by name; those of the same predictor with other values also name what they depend on.

    Args:
        metric: the metric of the floors.
        computed: what floors depend on (`dropbench.tasks.floors.floors.read_by_floors`), with the floors.
    """
    from dropbench.db.queries.marks import differing_fields

    values: defaultdict[str, set[float]] = defaultdict(set)
    for floor in (floor for _, floors in computed for floor in floors if floor.metric == metric):
        values[floor.name].add(floor.value)
    named = {}
    for fields, (_, floors) in zip(differing_fields([read for read, _ in computed]), computed, strict=True):
        where = f" ({', '.join(sorted(fields))})"
        for floor in (floor for floor in floors if floor.metric == metric):
            named[floor.name + where * (len(values[floor.name]) > 1)] = floor.value
    return named


@app.command(epilog=examples("dashboard", "dashboard --port 0"))
def dashboard(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port on this machine; 0: any free port.")
    ] = 8642,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve live web pages of the database to this machine only; changes nothing. Stop it by Ctrl-C."""
    from dropbench.db.report.dashboard.app import serve
    from dropbench.jobs.queue.status import activity

    settings = Settings.from_environment()

    def show_address(address: str) -> None:
        typer.echo(json.dumps({"address": address}) if as_json else f"dashboard: {address} (stop by Ctrl-C)")

    serve(settings, port, activity, show_address)
