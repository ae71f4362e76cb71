"""Build the view of a suite's table from its cells, the database and the run directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dropbench.db.queries.marks import reference_notes, subset_notes
from dropbench.db.reference.describe import describe
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.requests import SuiteTable
from dropbench.db.report.view.view import View, build
from dropbench.db.schema.connection import reading
from dropbench.db.store.run_record import find_damage
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import Selection

MAX_NAMED = 5
"""Damaged run directories that notices name; the others are counted."""


def build_view(table: SuiteTable, store: Store, runs: Path, *, peek: bool = False) -> View:
    """Return the results of a table's cells, with the notes of their runs on subsets of the data.

    A notice names each run directory that no longer has the result that the database has.

    In a tuned preset no test score of a column is read before all of its candidates are done, unless `peek` is true.

    Args:
        table: the cells with their trials.
        store: the database.
        runs: folder of the run directories.
        peek: read the scores of unfinished columns.
    """
    unfinished = choosing(table)
    cells = table.cells
    if not peek:
        cells = [replace(cell, hidden=_column(cell) in unfinished) for cell in cells]
    view = with_subsets(build(table.request, cells, store), runs, store)
    origin = describe(store, runs, [id for cell in cells for id in cell.ids])
    done = [seed.id for result in view.cells.values() for seed in result.seeds if seed.state == "succeeded"]
    damaged = find_damage(runs, done)
    lines = [f"damaged: {line}" for line in damaged[:MAX_NAMED]]
    if len(damaged) > MAX_NAMED:
        lines.append(f"damaged: {len(damaged) - MAX_NAMED} more")
    return replace(view, notices=(*unfinished.values(), *lines), reference=origin)


def choosing(table: SuiteTable) -> dict[tuple[str, str], str]:
    """Return the progress of the candidates by column and origin, for unfinished columns of a tuned preset."""
    if not table.request.tuned:
        return {}
    columns: dict[tuple[str, str], list[Selection]] = {}
    for cell in table.cells:
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
