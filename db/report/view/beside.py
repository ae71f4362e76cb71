"""The cells of a suite's table from the user's database and from a reference, in rows of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from db.queries.recorded import NO_DATA, AmbiguousFilesError
from db.reference.load import open_reference
from db.reference.merge import merged
from db.report.view.cells import CellTrials
from db.report.view.run_options import ResolvedOptions, resolve_options, trial_ids
from db.store.store import Store
from harness.errors import InputError, UnsuitableError
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import Suite
from harness.trials.task import TASKS


@contextlib.contextmanager
def opened_beside(
    suite: Suite, requested: SuiteOptions, settings: Settings, own: Store, location: str | None
) -> Iterator[tuple[Store, ResolvedOptions]]:
    """Open the database of a table, with a reference if there is a `location`, and resolve the table's cells.

    Raises:
        InputError: as `db.reference.load.open_reference` and `resolve_beside`.
    """
    if location is None:
        yield own, resolve_options(suite, requested, settings, own)
        return
    with open_reference(location) as reference, merged(own, reference) as store:
        yield store, resolve_beside(suite, requested, settings, own, reference)


def resolve_beside(
    suite: Suite, requested: SuiteOptions, settings: Settings, own: Store, reference: Store
) -> ResolvedOptions:
    """Resolve the cells of a table, those of the reference before the user's; errors as in `resolve_options`.

    A cell of the user's without any trial is left out if the reference has trials of it; if neither has, it is checked
    whether its regularizer fits. Without any option and any trial of the user's, the table is that of the reference.
    """
    apart = replace(settings, data=NO_DATA, folders={})
    theirs = _resolved(suite, requested, apart, reference)
    if isinstance(theirs, ResolvedOptions) and not any(own.counts().values()):
        requested = theirs.choice  # the user's cells with the default options are not needed
    ours = _resolved(suite, requested, settings, own)
    if isinstance(theirs, InputError):
        if isinstance(ours, InputError):
            raise ours
        return replace(ours, notes=[*ours.notes, "the reference has no trial of this suite with these options"])
    their_cells = with_trials(theirs.cells, reference)
    if not isinstance(ours, InputError) and with_trials(ours.cells, own):
        if theirs.choice != ours.choice:
            return replace(ours, notes=[*ours.notes, *(f"reference: {note}" for note in theirs.notes)])
    elif theirs.choice != requested:
        ours = _resolved(suite, theirs.choice, settings, own)
    if isinstance(ours, InputError):
        return replace(theirs, cells=_sorted(their_cells, [], [_position(cell) for cell in theirs.cells]))
    present = {_position(cell) for cell in their_cells}
    kept = {id(cell) for cell in with_trials(ours.cells, own)}
    our_cells = [
        cell if id(cell) in kept else _checked(cell)
        for cell in ours.cells
        if id(cell) in kept or _position(cell) not in present
    ]
    ids = trial_ids(their_cells)
    complete = theirs.choice == requested and 0 < len(ids) == len(reference.states(list(ids)))
    notes = [*(() if complete else theirs.notes), *(ours.notes if kept else ())]
    order = [_position(cell) for cell in (*theirs.cells, *ours.cells)]
    return ResolvedOptions(theirs.choice, _sorted(their_cells, our_cells, order), notes)


def _resolved(suite: Suite, choice: SuiteOptions, settings: Settings, store: Store) -> ResolvedOptions | InputError:
    try:
        return resolve_options(suite, choice, settings, store)
    except AmbiguousFilesError:
        raise
    except InputError as error:
        return error


def with_trials(cells: Iterable[CellTrials], store: Store) -> list[CellTrials]:
    """Return the cells of which a database has any trial."""
    ids = [(cell, trial_ids([cell])) for cell in cells]
    known = store.states(list(set().union(*(own for _, own in ids)))).keys()
    return [cell for cell, own in ids if not known.isdisjoint(own)]


def _checked(cell: CellTrials) -> CellTrials:
    """Return a cell that has no trial in any database; with the reason if its regularizer fits with no values."""
    candidates = cell.selection.candidates if cell.selection is not None else ()
    reasons: list[str] = []
    for trials in filter(None, (cell.trials, *(candidate.trials for candidate in candidates))):
        try:
            TASKS.get(trials[0].task).check(trials[0])
        except UnsuitableError as error:
            reasons.append(str(error))
        except InputError:  # `run` reports it
            return cell
        else:
            return cell
    return CellTrials(cell.cell, (), reasons[0]) if reasons else cell


def _sorted(
    theirs: Iterable[CellTrials], ours: Iterable[CellTrials], order: Iterable[tuple[str, str]]
) -> list[CellTrials]:
    """Return the cells in the order of these positions, those of the reference before the user's."""
    at: dict[tuple[str, str], list[CellTrials]] = {position: [] for position in order}
    for cell in chain((replace(cell, origin="reference") for cell in theirs), ours):
        at[_position(cell)].append(cell)
    return list(chain.from_iterable(at.values()))


def _position(cell: CellTrials) -> tuple[str, str]:
    return cell.cell.row, cell.cell.column
