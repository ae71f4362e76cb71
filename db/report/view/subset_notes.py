"""Notes on cells measured on a subset of the published data, as recorded by their runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from db.report.view.view import CellResult, View
from harness.errors import InputError
from harness.runs.run_directory import Runs
from harness.trials.task import SUBSET


def with_subsets(view: View, runs: Path) -> View:
    """Return the view with the subset notes of its runs; cells without a run directory have none.

    Args:
        view: the table of a suite.
        runs: the root of the run directories.
    """
    notes_of: dict[tuple[str, str | None], tuple[str, ...]] = {}
    for result in view.cells.values():
        data = result.cell.request.data, result.fingerprint
        if data not in notes_of and (notes := _notes(result, runs)) is not None:
            notes_of[data] = notes
    return replace(
        view,
        cells={
            position: replace(result, subset=notes_of.get((result.cell.request.data, result.fingerprint), ()))
            for position, result in view.cells.items()
        },
    )


def _notes(result: CellResult, runs: Path) -> tuple[str, ...] | None:
    """Return the subset notes of the first run of the cell that has a result file; None if there is none."""
    for seed in result.seeds:
        if seed.state not in ("succeeded", "not analyzed"):
            continue
        try:
            content = Runs(runs)[seed.id].result()
        except InputError:
            continue
        if content is not None:
            notes = [note for note in content.get("notes", ()) if isinstance(note, str)]
            return tuple(note.removeprefix(SUBSET) for note in notes if note.startswith(SUBSET))
    return None
