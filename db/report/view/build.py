"""Build the view of a suite from its cells and the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from db.report.view.view import CellTrials, View
    from db.store.store import Store
    from harness.settings import Settings
    from harness.suites.cell import Cell, SuiteOptions
    from harness.suites.suite import Suite


def build_view(suite: Suite, cells: Sequence[CellTrials], store: Store, settings: Settings) -> View:
    """Return the results of a suite's cells, with the notes of their runs on subsets of the data."""
    from db.report.view.subset_notes import with_subsets
    from db.report.view.view import build

    return with_subsets(build(suite, cells, store), settings.runs)


def resolve_cells(suite: Suite, options: SuiteOptions, settings: Settings, store: Store) -> list[CellTrials]:
    """Return the cells with their trials; cells whose data set is missing have the reason instead.

    The trials of a swept cell are those of the candidate that the dev scores in the database select.

    Raises:
        InputError: the options do not fit the suite, or none of its data sets is on this machine.
    """
    from db.report.view.view import CellTrials
    from harness.errors import InputError

    cells: list[CellTrials] = []
    errors: dict[str, InputError] = {}
    for cell in suite.cells(options):
        try:
            if cell.sweep is None:
                cells.append(CellTrials(cell, cell.trials(settings)))
            else:
                cells.append(resolve_swept_cell(cell, settings, store))
        except InputError as error:
            errors.setdefault(cell.request.data, error)
            cells.append(CellTrials(cell, (), str(error)))
    # If other cells have trials on the same data, the error is not about missing data.
    available = {cell.cell.request.data for cell in cells if cell.reason is None}
    for data, missing in errors.items():
        if data in available or not available:
            raise missing
    return cells


def resolve_swept_cell(cell: Cell, settings: Settings, store: Store) -> CellTrials:
    """Return a swept cell with the trials of the candidate that the dev scores in the database select.

    Raises:
        InputError: the trials of a candidate cannot be created on this machine.
    """
    from db.report.view.view import CellTrials
    from db.tuning.select import select

    selection = select(cell, settings, store)
    chosen = selection.chosen
    if chosen is None:
        return CellTrials(cell, (), selection=selection)
    return CellTrials(chosen.cell, chosen.trials, selection=selection)
