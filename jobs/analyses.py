"""The analyses that a suite's cells are made of, on those of its trials that are trained."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import typer

from harness.analysis import ANALYSES, Options, analysis_of
from harness.errors import InputError
from harness.files import write_atomic
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.suite import Cell, Choice, Suite, load_suite
from harness.trial import Trial
from jobs.request import with_folders


@dataclass
class Outcome:
    """What became of the analyses of a suite.

    Attributes:
        made: how many were made now.
        present: how many were there.
        untrained: ids of the trials that have no result to look at.
        failures: one line for each that could not be made.
    """

    made: int = 0
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
    """`dropbench analyze SUITE`; returns and raises as `show_suite`."""
    settings, names = with_folders(settings, data or ())
    choice = Choice(
        preset=preset or "mini", seeds=tuple(range(seeds or 0)), data=tuple(names), models=tuple(model or ())
    )
    return show_suite(load_suite(name), choice, settings, kind, as_json=as_json)


def show_suite(
    suite: Suite, choice: Choice, settings: Settings, kind: str | None = None, *, as_json: bool = False
) -> bool:
    """Analyze the trained trials of a suite, print its table, and draw its figure where it stands for one.

    Returns:
        whether every analysis could be made; those that could not are told on standard error.

    Raises:
        InputError: as `analyze_suite`.
    """
    from db.report import print_suite
    from db.store import open_store

    outcome = analyze_suite(suite, choice, settings, kind)
    with open_store(settings.database) as store:
        view = print_suite(suite, choice, store, settings, as_json=as_json)
        drawn = None
        if suite.figure is not None:
            from db.report.figures import figure

            try:
                drawn = figure(view, settings.runs)
            except InputError as error:
                outcome.failures.append(str(error))
    if drawn is not None:
        file = settings.runs / "figures" / f"{suite.name.replace('/', '-')}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, drawn)
        typer.echo(f"figure: {file}", err=True)
    for line in outcome.failures:
        typer.echo(line, err=True)
    return not outcome.failures


def analyze_suite(suite: Suite, choice: Choice, settings: Settings, kind: str | None = None) -> Outcome:
    """Make what is missing; what was made is kept at once, so that an interrupted one goes on where it was.

    Args:
        suite: the suite.
        choice: what of it.
        settings: where the runs, the data and the database are, and the device.
        kind: this analysis of each trial, whether its cells need it or not.

    Raises:
        InputError: an analysis is unknown, or the choice does not fit the suite.
    """
    kind = ANALYSES.entry(kind).name if kind is not None else None
    wanted = _wanted(_shown(suite, choice, settings), kind)
    outcome = Outcome()
    todo: list[tuple[RunDirectory, str, set[str]]] = []
    for (id, name), scalars in wanted.items():
        directory = RunDirectory(settings.runs / id)
        if not directory.path.is_dir() or directory.result() is None:
            if id not in outcome.untrained:
                outcome.untrained.append(id)
            continue
        if _is_made(directory, name, scalars):
            outcome.present += 1
        else:
            todo.append((directory, name, scalars))
    if todo:
        _make(todo, settings, outcome)
    return outcome


def _shown(suite: Suite, choice: Choice, settings: Settings) -> list[tuple[Cell, Sequence[Trial]]]:
    """The cells with the trials whose numbers the table shows: of a swept one those of what was chosen."""
    from db.selection import select
    from db.store import open_store

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


def _wanted(shown: Sequence[tuple[Cell, Sequence[Trial]]], kind: str | None) -> dict[tuple[str, str], set[str]]:
    """The scalars that cells need, by trial and analysis."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for cell, trials in shown:
        own = analysis_of(cell.metric)
        for name in {own, kind} - {None}:
            for trial in trials:
                scalars = wanted.setdefault((trial.id, str(name)), set())
                if name == own:
                    scalars.add(cell.metric.removeprefix(f"{own}/"))
    return wanted


def _is_made(directory: RunDirectory, kind: str, scalars: set[str]) -> bool:
    """Whether an analysis with the default options is there, with these scalars."""
    try:
        report = json.loads((directory.analyses / f"{kind}.json").read_bytes())
        usual = all(report[key] == value for key, value in asdict(Options()).items())
        return usual and scalars <= report["scalars"].keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # missing or damaged: it is made anew


def _make(todo: list[tuple[RunDirectory, str, set[str]]], settings: Settings, outcome: Outcome) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from harness.analysis.run import analyze

    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("analyzing", total=len(todo))
        for number, (directory, kind, scalars) in enumerate(todo, 1):
            try:
                found = analyze(directory.id, kind, Options(), settings)["scalars"]
                if missing := scalars - set(found):
                    raise InputError(f"no '{min(missing)}' in {kind}: expected {', '.join(found)}")
            except InputError as error:
                outcome.failures.append(f"{directory.id}: {error}")
                told = f"failed: {error}"
            else:
                outcome.made += 1
                told = "done"
            bar.advance(task)
            bar.console.print(f"[{number}/{len(todo)}] {directory.id} {kind}: {told}", markup=False, soft_wrap=True)
