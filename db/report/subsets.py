"""Which cells of a table were measured on a part of the published data: their runs have noted it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from db.report.view import Outcome, View
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.task import SUBSET


def with_subsets(view: View, runs: Path) -> View:
    """The view, its outcomes with what their runs noted; cells without a run directory here say nothing.

    Args:
        view: a suite's table.
        runs: the root of the run directories.
    """
    known: dict[tuple[str, str | None], tuple[str, ...]] = {}
    for outcome in view.cells.values():
        data = outcome.cell.request.data, outcome.fingerprint
        if data not in known and (notes := _notes(outcome, runs)) is not None:
            known[data] = notes
    return replace(
        view,
        cells={
            place: replace(outcome, subset=known.get((outcome.cell.request.data, outcome.fingerprint), ()))
            for place, outcome in view.cells.items()
        },
    )


def _notes(outcome: Outcome, runs: Path) -> tuple[str, ...] | None:
    """The notes of the first of the cell's runs that has a result."""
    for seed in outcome.seeds:
        if seed.state not in ("succeeded", "not analyzed"):
            continue
        try:
            result = RunDirectory(runs / seed.id).result()
        except InputError:
            continue
        if result is not None:
            notes = [note for note in result.get("notes", ()) if isinstance(note, str)]
            return tuple(note.removeprefix(SUBSET) for note in notes if note.startswith(SUBSET))
    return None
