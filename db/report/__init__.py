"""A suite's table: what its trials came to, beside the baseline and the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from db.report.view import Asked, View
    from db.store import Store
    from harness.settings import Settings
    from harness.suite import Choice, Suite


def print_suite(
    suite: Suite,
    choice: Choice,
    store: Store,
    settings: Settings,
    *,
    as_json: bool = False,
    console: Console | None = None,
) -> None:
    """Print the table of a suite as it stands in the database.

    Raises:
        InputError: the choice does not fit the suite.
    """
    import typer
    from rich.console import Console

    from db.report.formats import as_json as json_of
    from db.report.terminal import print_table

    view = build_view(suite, ask(suite, choice, settings), store)
    if as_json:
        typer.echo(json_of(view))
    else:
        print_table(view, console or Console(highlight=False))


def print_trials(ids: Sequence[str], store: Store, *, as_json: bool = False, console: Console | None = None) -> None:
    """Print the results of some trials, as `dropbench results` does."""
    import typer
    from rich.console import Console

    from db.query import results
    from db.report import listing

    rows = results(store, ids=ids)
    if as_json:
        typer.echo(listing.to_json(rows))
    else:
        above, table = listing.results_table(rows)
        listing.print_table(table, console or Console(highlight=False), above)


def build_view(suite: Suite, asked: Sequence[Asked], store: Store) -> View:
    """The table as numbers."""
    from db.report.view import build

    return build(suite, asked, store)


def ask(suite: Suite, choice: Choice, settings: Settings) -> list[Asked]:
    """The cells with their trials; a cell whose data are not here has the reason instead.

    Raises:
        InputError: the choice does not fit the suite, or no cell has trials; the message is the first one's.
    """
    from db.report.view import Asked
    from harness.errors import InputError
    from harness.task import TASKS

    cells, first = [], None
    for cell in suite.cells(choice):
        try:
            task = TASKS.get(cell.request.task)
            trials = [task.trial_for(cell.request.model_copy(update={"seed": seed}), settings) for seed in cell.seeds]
            cells.append(Asked(cell, trials))
        except InputError as error:
            first = first or error
            cells.append(Asked(cell, (), str(error)))
    if first is not None and not any(one.trials for one in cells):
        raise first
    return cells
