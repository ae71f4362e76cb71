"""What a table tells of its recipes: how they differ from those of its source."""

from __future__ import annotations

from collections.abc import Iterator

from db.report.view import Outcome, View
from harness.deviations import PAPER, Change, changes, summed_up
from harness.errors import InputError
from harness.suite import Choice
from harness.task import outline_of
from harness.trial import TrialRequest


def recipe_lines(view: View) -> list[str]:
    """A line for each thing that the published recipe does in another way here, and one for all keys that differ."""
    smaller = f"preset {view.preset}: a smaller recipe"
    if not any(outcome.published is not None for outcome in view.cells.values()):
        return [] if view.preset == PAPER else [smaller]
    words: dict[str, None] = {}
    found: list[Change] = []
    for outcome, request in _published(view):
        task = outline_of(request.task)
        try:
            ours, theirs = task.resolved(outcome.cell.request), task.resolved(request)
        except InputError:
            continue  # a cell whose trials could not be made says so itself
        if ours is not None and theirs is not None:
            words.update(dict.fromkeys(theirs.words))
            found += changes(ours.recipe, theirs.recipe)
    told = ", ".join(summed_up(found))
    if view.preset != PAPER:
        head = [f"{smaller} than the published one" + (f": {told}" if told else "")]
    else:
        head = [f"unlike the published recipe: {told}"] if told else []
    return [*head, *(f"unlike the source: {sentence}" for sentence in words)]


def _published(view: View) -> Iterator[tuple[Outcome, TrialRequest]]:
    """The cells that the source has, each with the request that stands for it as published."""
    if PAPER not in view.suite.presets:
        return
    cells = {(cell.row, cell.column): cell.request for cell in view.suite.cells(Choice(preset=PAPER))}
    for outcome in view.cells.values():
        request = cells.get((outcome.cell.row, outcome.cell.column))
        if request is not None:
            yield outcome, request
