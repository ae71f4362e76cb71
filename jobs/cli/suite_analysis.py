"""Run the analyses of single trials and of suites' trained trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import typer

from harness.analysis import ANALYSES, analysis_of
from harness.analysis import options as analysis_options
from harness.errors import InputError
from harness.files import write_atomic
from harness.runs.run_directory import RunDirectory, Runs
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.suite import Suite, load_suite
from harness.trials.trial import Trial
from jobs.queue.trial_request import Options


def analyze_trial(
    start: str, kind: str, options: analysis_options.Options, settings: Settings, output: Path | None = None
) -> dict[str, Any]:
    """Run an analysis, and store its findings in the run directory and the database, or in the folder `output`.

    See `harness.analysis.run.analyze` for arguments, result and errors.
    """
    from db.store.refresh import refresh
    from harness.analysis.run import analyze

    report = analyze(start, kind, options, settings, output)
    if output is None:
        refresh(settings, Runs(settings.runs)[report["trial"]])
    return report


@dataclass
class AnalysisSummary:
    """The analyses of a suite.

    Attributes:
        done: number of analyses run now.
        present: number of analyses that existed before.
        untrained: ids of trials without a result to analyze.
        failures: one line per failed analysis.
    """

    done: int = 0
    present: int = 0
    untrained: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def analyze(
    name: str,
    kind: str | None,
    settings: Settings,
    preset: str | None,
    seeds: int | None,
    data: Sequence[str] | None,
    model: Sequence[str] | None,
    *,
    as_json: bool,
) -> bool:
    """Run `dropbench analyze SUITE`; see `show_suite` for the result and errors."""
    settings, choice = Options(preset or "mini", seeds, data or (), model or ()).to_choice(settings)
    return show_suite(load_suite(name), choice, settings, kind, as_json=as_json)


def show_suite(
    suite: Suite, choice: SuiteOptions, settings: Settings, kind: str | None = None, *, as_json: bool = False
) -> bool:
    """Analyze the trained trials of a suite, print its table, and draw its figure if it has one.

    Returns:
        whether every analysis succeeded; failures are reported on standard error.

    Raises:
        InputError: see `analyze_suite`.
    """
    from db.report.printing import print_suite
    from db.store.store import open_store

    summary = analyze_suite(suite, choice, settings, kind)
    with open_store(settings.database) as store:
        view = print_suite(suite, choice, store, settings, as_json=as_json)
        image = None
        if suite.figure is not None:
            from db.report.figures.figures import figure

            try:
                image = figure(view, settings.runs)
            except InputError as error:
                summary.failures.append(str(error))
    if image is not None:
        file = settings.runs / "figures" / f"{suite.name.replace('/', '-')}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, image)
        typer.echo(f"figure: {file}", err=True)
    for line in summary.failures:
        typer.echo(line, err=True)
    return not summary.failures


def analyze_suite(suite: Suite, choice: SuiteOptions, settings: Settings, kind: str | None = None) -> AnalysisSummary:
    """Run the missing analyses of a suite, and `kind` on each trial even if no cell needs it.

    Each analysis is stored at once, so that an interrupted command can continue.

    Raises:
        InputError: an analysis is unknown, or the suite does not have what the choice names.
    """
    kind = ANALYSES.entry(kind).name if kind is not None else None
    required = _required_scalars(_trials_shown(suite, choice, settings), kind)
    summary = AnalysisSummary()
    missing: list[tuple[RunDirectory, str, set[str]]] = []
    for (id, name), scalars in required.items():
        directory = Runs(settings.runs)[id]
        if not directory.path.is_dir() or directory.result() is None:
            if id not in summary.untrained:
                summary.untrained.append(id)
            continue
        if _is_present(directory, name, scalars):
            summary.present += 1
        else:
            missing.append((directory, name, scalars))
    if missing:
        _run_missing(missing, settings, summary)
    return summary


def _trials_shown(suite: Suite, choice: SuiteOptions, settings: Settings) -> list[tuple[Cell, Sequence[Trial]]]:
    """Return the cells with the trials that the table shows: in a swept cell, those of the chosen candidate."""
    from db.store.store import open_store
    from db.tuning.select import select

    shown: list[tuple[Cell, Sequence[Trial]]] = []
    for cell in suite.cells(choice):
        if cell.sweep is None:
            shown.append((cell, cell.trials(settings)))
            continue
        with open_store(settings.database) as store:
            chosen = select(cell, settings, store).chosen
        if chosen is not None:
            shown.append((chosen.cell, chosen.trials))
    return shown


def _required_scalars(
    shown: Sequence[tuple[Cell, Sequence[Trial]]], kind: str | None
) -> dict[tuple[str, str], set[str]]:
    """Return the scalars that the cells need, by trial and analysis."""
    required: dict[tuple[str, str], set[str]] = {}
    for cell, trials in shown:
        analysis = analysis_of(cell.metric)
        for name in {analysis, kind} - {None}:
            for trial in trials:
                scalars = required.setdefault((trial.id, str(name)), set())
                if name == analysis:
                    scalars.add(cell.metric.removeprefix(f"{analysis}/"))
    return required


def _is_present(directory: RunDirectory, kind: str, scalars: set[str]) -> bool:
    """Return whether an analysis with the default options and these scalars is stored."""
    try:
        report = json.loads((directory.analyses / f"{kind}.json").read_bytes())
        is_default = all(report[key] == value for key, value in asdict(analysis_options.Options()).items())
        return is_default and scalars <= report["scalars"].keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # missing or damaged: run it again


def _run_missing(
    missing: list[tuple[RunDirectory, str, set[str]]], settings: Settings, summary: AnalysisSummary
) -> None:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("analyzing", total=len(missing))
        for number, (directory, kind, scalars) in enumerate(missing, 1):
            try:
                measured = analyze_trial(directory.id, kind, analysis_options.Options(), settings)["scalars"]
                if unknown := scalars - set(measured):
                    raise InputError(f"no '{min(unknown)}' in {kind}: expected {', '.join(measured)}")
            except InputError as error:
                summary.failures.append(f"{directory.id}: {error}")
                end = f"failed: {error}"
            else:
                summary.done += 1
                end = "done"
            bar.advance(task)
            bar.console.print(f"[{number}/{len(missing)}] {directory.id} {kind}: {end}", markup=False, soft_wrap=True)
