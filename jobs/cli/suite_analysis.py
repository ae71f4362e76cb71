"""Run the analyses of single trials and of suites' trained trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from db.cli.output import opened, show_suite_table
from db.report.formats.documents import as_json as to_json
from db.report.formats.listing import print_trials
from db.report.view.beside import opened_beside
from db.report.view.build import build_view, resolve_cells
from db.report.view.run_options import resolve_options
from db.report.view.view import View
from db.store.run_record import read_run_record
from db.store.store import Store, open_store
from harness.analysis import ANALYSES, analysis_of
from harness.analysis.options import Options
from harness.errors import InputError, count_of
from harness.files import write_atomic
from harness.runs.run_directory import RunDirectory, Runs
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import Suite
from jobs.queue.reconcile import refresh


def analyze_trial(
    start: str, kind: str, options: Options, settings: Settings, output: Path | None = None
) -> dict[str, Any]:
    """Run `harness.analysis.run.analyze`, and store the scalars if `output` is None and there is a database."""
    from harness.analysis.run import analyze

    report = analyze(start, kind, options, settings, output)
    if output is None:
        record = read_run_record(Runs(settings.runs)[report["trial"]])
        with opened(settings) as store:
            store.record([record])
    return report


def show_matching(words: str, kind: str, settings: Settings, *, as_json: bool) -> None:
    """Run the missing analyses of trained trials, and print them as results; raise InputError if no trial matches."""
    kind = ANALYSES.entry(kind).name
    with opened(settings) as store:
        refresh(store, settings)
        ids = store.find(f"succeeded {words}")
        if not ids:
            raise InputError(f"no trained trial matches '{words}': run `dropbench status` to count the trials")
        failures = _run_missing({(id, kind): set() for id in ids}, settings)
        print_trials(ids, store, kind, as_json=as_json)
    if failures:
        typer.echo("\n".join(failures), err=True)
        raise typer.Exit(1)


def show_suite(
    suite: Suite, choice: SuiteOptions, settings: Settings, kind: str | None = None, *, as_json: bool = False,
    strict: bool = False, beside: str | None = None,
) -> bool:  # fmt: skip
    """Analyze the trained trials of a suite, print its table, and draw its figure if it has one.

    `beside` is the location of a reference, whose results the table also shows (`db.reference.load.open_reference`).
    If `strict`, a choice without any option is replaced as in `db.report.view.run_options.resolve_options`. Report
    failed analyses on standard error, and return whether there are none. Errors as in `analyze_suite`.
    """
    notes: list[str] = []
    with open_store(settings.database) as store:
        if strict:
            kind = ANALYSES.entry(kind).name if kind is not None else None
            refresh(store, settings)
            resolved = resolve_options(suite, choice, settings, store)
            choice, notes = resolved.choice, resolved.notes
        failures = analyze_suite(suite, choice, settings, store, kind, strict=strict, notes=notes)
        view = _view(suite, choice, settings, store, beside)
        if as_json:
            typer.echo(to_json(view))
        else:
            show_suite_table(view)
        if suite.figure is not None:
            from db.report.figures.figures import figure

            try:
                image = figure(view, settings.runs)
            except InputError as error:
                failures.append(str(error))
            else:
                file = settings.runs / "figures" / f"{suite.name.replace('/', '-')}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(file, image)
                typer.echo(f"figure: {file}", err=True)
    for line in (*notes, *failures):
        typer.echo(line, err=True)
    return not failures


def _view(suite: Suite, choice: SuiteOptions, settings: Settings, store: Store, beside: str | None) -> View:
    if beside is None:
        return build_view(suite, resolve_cells(suite, choice, settings, store), store, settings)
    with opened_beside(suite, choice, settings, store, beside) as (tables, resolved):
        return build_view(suite, resolved.cells, tables, settings)


def analyze_suite(
    suite: Suite, choice: SuiteOptions, settings: Settings, store: Store, kind: str | None, *, strict: bool = False,
    notes: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Run the missing analyses of a suite's trained trials, and `kind` on each even if no cell needs it.

    Each analysis is stored at once, so that an interrupted command can continue. Return one line per failed analysis.

    Raises:
        InputError: an analysis is unknown, the suite does not have what the choice names, or, if `strict`, there is
            nothing to analyze; it has the first of `notes` then.
    """
    kind = ANALYSES.entry(kind).name if kind is not None else None
    required = _required_scalars(suite, choice, settings, store, kind)
    trained = {key: names for key, names in required.items() if Runs(settings.runs)[key[0]].result() is not None}
    if strict and not trained and (required or suite.figure is None):
        states = [row.state for row in store.states([id for id, _ in required]).values()]
        if not required:
            cause = f"its table shows no analysis: pass one of {', '.join(ANALYSES)}"
        elif done := states.count("succeeded"):
            cause = f"{count_of(done, 'trained trial')} not in {settings.runs}: set DROPBENCH_RUNS to their folder"
        else:
            advice = next(iter(notes), f"run `dropbench run {suite.name}` with the same options")
            cause = f"no trained trial in {settings.runs}: {advice}"
        raise InputError(f"analyze {suite.name}: {cause}")
    return _run_missing(trained, settings)


def _required_scalars(
    suite: Suite, choice: SuiteOptions, settings: Settings, store: Store, kind: str | None
) -> dict[tuple[str, str], set[str]]:
    """Return the scalars that the cells need, by trial and analysis; for a swept cell, of the chosen candidate."""
    required: dict[tuple[str, str], set[str]] = {}
    for resolved in resolve_cells(suite, choice, settings, store):
        metric, analysis = resolved.cell.metric, analysis_of(resolved.cell.metric)
        for name in {analysis, kind} - {None}:
            for trial in resolved.trials:
                scalars = required.setdefault((trial.id, str(name)), set())
                if name == analysis:
                    scalars.add(metric.removeprefix(f"{analysis}/"))
    return required


def _is_present(directory: RunDirectory, kind: str, scalars: set[str]) -> bool:
    """Return whether an analysis with the default options and these scalars is stored."""
    try:
        report = json.loads((directory.analyses / f"{kind}.json").read_bytes())
        is_default = all(report[key] == value for key, value in asdict(Options()).items())
        return is_default and scalars <= report["scalars"].keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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
