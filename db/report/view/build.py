"""Build the view of a suite from its cells, the database and the run directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from db.queries.marks import reference_notes, subset_notes
from db.queries.recorded import AmbiguousFilesError, RecordedTrials, trials_of
from db.reference.describe import describe
from db.report.view.cells import CellTrials
from db.report.view.view import View, build
from db.schema.connection import reading
from db.store.store import Store
from db.tuning.select import Selection, select
from harness.errors import InputError
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.suite import Suite


def build_view(
    suite: Suite, cells: Sequence[CellTrials], store: Store, settings: Settings, *, peek: bool = False
) -> View:
    """Return the results of a suite's cells, with the notes of their runs on subsets of the data.

    In a tuned preset no test score of a column is read before all of its candidates are done, unless `peek` is true.
    """
    unfinished = choosing(suite, cells)
    if not peek:
        cells = [replace(cell, hidden=_column(cell) in unfinished) for cell in cells]
    view = with_subsets(build(suite, cells, store), settings.runs, store)
    origin = describe(store, settings.runs, [id for cell in cells for id in cell.ids])
    return replace(view, notices=tuple(unfinished.values()), reference=origin)


def choosing(suite: Suite, cells: Sequence[CellTrials]) -> dict[tuple[str, str], str]:
    """Return the progress of the candidates by column and origin, for unfinished columns of a tuned preset."""
    preset = suite.presets.get(cells[0].cell.request.preset) if cells else None
    if preset is None or not preset.tuned:
        return {}
    columns: dict[tuple[str, str], list[Selection]] = {}
    for cell in cells:
        if cell.selection is not None:
            columns.setdefault(_column(cell), []).append(cell.selection)
    return {
        column: _progress(column[0], selections)
        for column, selections in columns.items()
        if not all(selection.settled for selection in selections)
    }


def _column(cell: CellTrials) -> tuple[str, str]:
    return cell.cell.column, cell.origin


def _progress(column: str, selections: Sequence[Selection]) -> str:
    candidates = [candidate for selection in selections for candidate in selection.candidates]
    total = len(candidates) + sum(selection.remaining for selection in selections)
    done = sum(candidate.settled for candidate in candidates)
    return (
        f"{column}: choosing, {done}/{total} candidates done;"
        " until all are, its test scores are read only with `report --peek`"
    )


def with_subsets(view: View, runs: Path, store: Store | None = None) -> View:
    """Return the view with the notes on subsets of the published data that its run directories or a reference have."""
    ids: dict[tuple[str, str | None], list[str]] = {}
    for result in view.cells.values():
        done = (seed.id for seed in result.seeds if seed.state in ("succeeded", "not analyzed"))
        ids.setdefault((result.cell.request.data, result.fingerprint), []).extend(done)
    theirs: Mapping[tuple[str, str | None], tuple[str, ...]] = {}
    if store is not None:
        with reading(store.engine) as connection:
            theirs = reference_notes(connection)
    notes = {data: theirs.get(data) or subset_notes(runs, trials) for data, trials in ids.items()}
    cells = {
        position: replace(result, subset=notes[result.cell.request.data, result.fingerprint])
        for position, result in view.cells.items()
    }
    return replace(view, cells=cells)


def resolve_cells(suite: Suite, options: SuiteOptions, settings: Settings, store: Store) -> list[CellTrials]:
    """Return the cells with their trials; cells whose data set is missing have the reason instead.

    Data that are not on this machine count as present if the database has trials on one version of them.

    Raises:
        InputError: the options do not fit the suite, or none of its data sets is present, or the database has trials
            on several versions of one.
    """
    cells: list[CellTrials] = []
    errors: dict[str, InputError] = {}
    recorded = RecordedTrials(store)
    for cell in list(suite.cells(options)):
        try:
            cells.append(resolve_cell(cell, settings, store, recorded))
        except AmbiguousFilesError:
            raise
        except InputError as error:
            errors.setdefault(cell.request.data, error)
            cells.append(CellTrials(cell, (), str(error)))
    # If other cells have trials on the same data, the error is not about missing data.
    available = {cell.cell.request.data for cell in cells if cell.reason is None}
    for data, missing in errors.items():
        if data in available or not available:
            raise missing
    return cells


def resolve_cell(cell: Cell, settings: Settings, store: Store, recorded: RecordedTrials) -> CellTrials:
    """Return a cell with its trials, of a sweep the selected ones; raise InputError if they cannot be created here."""
    if cell.sweep is None:
        return CellTrials(cell, trials_of([cell], settings, recorded)[0])
    selection = select(cell, settings, store, recorded)
    if selection.skipped:
        first = selection.candidates[0]  # the table shows its reason
        return CellTrials(first.cell, first.trials)
    if selection.chosen is None:
        return CellTrials(cell, (), selection=selection)
    return CellTrials(selection.chosen.cell, selection.chosen.trials, selection=selection)
