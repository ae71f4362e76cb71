"""Notes on how the recipes of a table differ from those of its source."""

from __future__ import annotations

from collections.abc import Iterator

from db.report.view.view import CellResult, View
from harness.errors import InputError
from harness.suites.cell import SuiteOptions
from harness.trials.recipe_diff import PAPER, Change, changes, summarize_changes
from harness.trials.task import spec_of
from harness.trials.trial import TrialRequest


def recipe_lines(view: View) -> list[str]:
    """Return one line on all keys that differ, and one for each deviation of the tasks from the source."""
    smaller = f"preset {view.preset}: a smaller recipe"
    if not any(result.published is not None for result in view.cells.values()):
        return [] if view.preset == PAPER else [smaller]
    notes: dict[str, None] = {}
    differing: list[Change] = []
    for result, request in _published_requests(view):
        task = spec_of(request.task)
        try:
            ours, theirs = task.resolved(result.cell.request), task.resolved(request)
        except InputError:
            continue  # the cell shows the reason itself
        if ours is not None and theirs is not None:
            notes.update(dict.fromkeys(theirs.notes))
            differing += changes(ours.recipe, theirs.recipe)
    summary = ", ".join(summarize_changes(differing))
    if view.preset != PAPER:
        head = [f"{smaller} than the published one" + (f": {summary}" if summary else "")]
    else:
        head = [f"unlike the published recipe: {summary}"] if summary else []
    return [*head, *(f"unlike the source: {note}" for note in notes)]


def _published_requests(view: View) -> Iterator[tuple[CellResult, TrialRequest]]:
    """Yield the cells of the source, each with the request of its published recipe."""
    if PAPER not in view.suite.presets:
        return
    requests = {(cell.row, cell.column): cell.request for cell in view.suite.cells(SuiteOptions(preset=PAPER))}
    for result in view.cells.values():
        request = requests.get((result.cell.row, result.cell.column))
        if request is not None:
            yield result, request
