"""Build the view of a suite from its cells, the database and the run directories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from db.report.view.view import CellResult, CellTrials, View, build
from db.store.store import Store
from db.tuning.select import select
from harness.errors import InputError
from harness.runs.run_directory import Runs
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.suite import Suite
from harness.trials.task import SUBSET


def build_view(suite: Suite, cells: Sequence[CellTrials], store: Store, settings: Settings) -> View:
    """Return the results of a suite's cells, with the notes of their runs on subsets of the data."""
    return with_subsets(build(suite, cells, store), settings.runs)


def with_subsets(view: View, runs: Path) -> View:
    """Return the view with the notes on subsets of the published data that its run directories in `runs` have."""
    notes_of: dict[tuple[str, str | None], tuple[str, ...]] = {}
    for result in view.cells.values():
        data = result.cell.request.data, result.fingerprint
        if data not in notes_of and (notes := _subset_notes(result, runs)) is not None:
            notes_of[data] = notes
    cells = {
        position: replace(result, subset=notes_of.get((result.cell.request.data, result.fingerprint), ()))
        for position, result in view.cells.items()
    }
    return replace(view, cells=cells)


def _subset_notes(result: CellResult, runs: Path) -> tuple[str, ...] | None:
    """Return the notes of the cell's first run that has a result file; None if no run has one."""
    for seed in result.seeds:
        if seed.state in ("succeeded", "not analyzed"):
            with suppress(InputError, TypeError):
                if (content := Runs(runs)[seed.id].result()) is not None:
                    notes = [note for note in content.get("notes", ()) if isinstance(note, str)]
                    return tuple(note.removeprefix(SUBSET) for note in notes if note.startswith(SUBSET))
    return None


def resolve_cells(suite: Suite, options: SuiteOptions, settings: Settings, store: Store) -> list[CellTrials]:
    """Return the cells with their trials; cells whose data set is missing have the reason instead.

    Raises:
        InputError: the options do not fit the suite, or none of its data sets is on this machine.
    """
    cells: list[CellTrials] = []
    errors: dict[str, InputError] = {}
    for cell in suite.cells(options):
        try:
            cells.append(resolve_cell(cell, settings, store))
        except InputError as error:
            errors.setdefault(cell.request.data, error)
            cells.append(CellTrials(cell, (), str(error)))
    # If other cells have trials on the same data, the error is not about missing data.
    available = {cell.cell.request.data for cell in cells if cell.reason is None}
    for data, missing in errors.items():
        if data in available or not available:
            raise missing
    return cells


def resolve_cell(cell: Cell, settings: Settings, store: Store) -> CellTrials:
    """Return a cell with its trials; for a swept one, those of the candidate that the dev scores select.

    Raises:
        InputError: the trials cannot be created on this machine.
    """
    if cell.sweep is None:
        return CellTrials(cell, cell.trials(settings))
    selection = select(cell, settings, store)
    if selection.chosen is None:
        return CellTrials(cell, (), selection=selection)
    return CellTrials(selection.chosen.cell, selection.chosen.trials, selection=selection)
