"""Run the analyses of single trials and of suites' trained trials."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from dropbench.db.cli.output import opened, show_suite_table
from dropbench.db.report.formats.documents import as_json as to_json
from dropbench.db.report.formats.listing import print_trials
from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.requests import SuiteTable
from dropbench.db.store.run_record import read_run_record
from dropbench.db.store.store import Store
from dropbench.harness.analysis import ANALYSES
from dropbench.harness.analysis.options import Options
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import write_atomic
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.jobs.queue.reconcile import opened_results


def analyze_trial(
    start: str, kind: str, options: Options, settings: Settings, output: Path | None = None
) -> dict[str, Any]:
    """Run `harness.analysis.run.analyze`, and store the scalars if `output` is None and there is a database."""
    from dropbench.harness.analysis.run import analyze

    report = analyze(start, kind, options, settings, output)
    if output is None:
        record = read_run_record(Runs(settings.runs)[report["trial"]])
        with opened(settings) as store:
            store.record([record])
    return report


def show_matching(words: str, kind: str, settings: Settings, *, as_json: bool) -> None:
    """Run the missing analyses of trained trials, and print them as results; raise InputError if no trial matches."""
    kind = ANALYSES.entry(kind).name
    with opened_results(settings) as store:
        ids = store.find(f"succeeded {words}")
        if not ids:
            raise InputError(f"no trained trial matches '{words}': run `dropbench status` to count the trials")
        failures = _run_missing({(id, kind): set() for id in ids}, settings)
        print_trials(ids, store, kind, as_json=as_json)
    if failures:
        typer.echo("\n".join(failures), err=True)
        raise typer.Exit(1)


def show_table(
    table: SuiteTable, settings: Settings, store: Store, own: Store, kind: str | None = None, *, as_json: bool = False,
    strict: bool = False,
) -> bool:  # fmt: skip
    """Analyze the user's trained trials of a suite, print its table, and draw its figure if it has one.

    `store` is the database of the table, and `own` the one that gets the measurements; they differ if the table has
    reference trials, too. Report failed analyses on standard error, and return whether there are none. Errors as in
    `analyze_table`.
    """
    failures = analyze_table(table, settings, own, kind, strict=strict)
    view = build_view(table, store, settings.runs)
    if as_json:
        typer.echo(to_json(view))
    else:
        show_suite_table(view)
    if view.suite.figure is not None:
        from dropbench.db.report.figures.figures import figure

        try:
            image = figure(view, settings.runs)
        except InputError as error:
            failures.append(str(error))
        else:
            name = re.sub(r"[^\w.-]", "-", view.suite.name)[:100]  # of any user's request: no path
            file = settings.runs / "figures" / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, image)
            typer.echo(f"figure: {file}", err=True)
    for line in (*table.notes, *failures):
        typer.echo(line, err=True)
    return not failures


def analyze_table(
    table: SuiteTable, settings: Settings, store: Store, kind: str | None = None, *, strict: bool = False
) -> list[str]:
    """Run the missing analyses of a table's trained trials, and `kind` on each even if no cell needs it.

    Each analysis is stored at once, so that an interrupted command can continue. Return one line per failed analysis.

    Raises:
        InputError: an analysis is unknown, or, if `strict`, there is nothing to analyze.
    """
    kind = ANALYSES.entry(kind).name if kind is not None else None
    required = _required_scalars(table, kind)
    trained = {key: names for key, names in required.items() if Runs(settings.runs)[key[0]].result() is not None}
    shows_any = kind is not None or any(cell.cell.analysis for cell in table.cells)
    if strict and not trained and (shows_any or table.request.suite.figure is None):
        states = [row.state for row in store.states([id for id, _ in required]).values()]
        if not shows_any:
            cause = f"its table shows no analysis: pass one of {', '.join(ANALYSES)}"
        elif done := states.count("succeeded"):
            cause = f"{count_of(done, 'trained trial')} not in {settings.runs}: set DROPBENCH_RUNS to their folder"
        else:
            advice = next(iter(table.notes), f"run `dropbench run {table.request.suite.name}`")
            cause = f"no trained trial in {settings.runs}: {advice}"
        raise InputError(f"analyze {table.request.suite.name}: {cause}")
    return _run_missing(trained, settings)


def _required_scalars(table: SuiteTable, kind: str | None) -> dict[tuple[str, str], set[str]]:
    """Return the scalars that the user's cells need, by trial and analysis; of a sweep, of the chosen candidate."""
    required: dict[tuple[str, str], set[str]] = {}
    for cell in (cell for cell in table.cells if cell.origin == "own"):
        metric, analysis = cell.cell.metric, cell.cell.analysis
        for name in {analysis, kind} - {None}:
            for id in cell.ids:
                scalars = required.setdefault((id, str(name)), set())
                if name == analysis:
                    scalars.add(metric.removeprefix(f"{analysis}/"))
    return required


def _is_present(directory: RunDirectory, kind: str, scalars: set[str]) -> bool:
    """Return whether an analysis with the default options and these scalars is stored."""
    try:
        report = directory.read(f"analysis/{kind}.json")
        is_default = all(report[key] == value for key, value in asdict(Options()).items())
        return is_default and scalars <= report["scalars"].keys()
    except (OSError, InputError, LookupError, TypeError, AttributeError):
        return False  # missing or damaged: run it again


def _run_missing(required: dict[tuple[str, str], set[str]], settings: Settings) -> list[str]:
    failures: list[str] = []
    runs = Runs(settings.runs)
    missing = [(id, kind, names) for (id, kind), names in required.items() if not _is_present(runs[id], kind, names)]
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not (missing and sys.stderr.isatty())) as bar:
        task = bar.add_task("analyzing", total=len(missing))
        for number, (id, kind, scalars) in enumerate(missing, 1):
            outcome = "done"
            try:
                measured = analyze_trial(id, kind, Options(), settings)["scalars"]
                if unknown := scalars - set(measured):
                    raise InputError(f"no '{min(unknown)}' in {kind}: expected {', '.join(measured)}")
            except InputError as error:
                failures.append(f"{id}: {error}")
                outcome = f"failed: {error}"
            bar.advance(task)
            console.print(f"[{number}/{len(missing)}] {id} {kind}: {outcome}", markup=False, soft_wrap=True)
    return failures
