"""A suite's table: what its trials came to, beside the baseline and the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from db.report.view import Asked, View
    from db.store import Store
    from harness.settings import Settings
    from harness.suite import Cell, Choice, Suite


def print_suite(
    suite: Suite,
    choice: Choice,
    store: Store,
    settings: Settings,
    *,
    as_json: bool = False,
    console: Console | None = None,
) -> View:
    """Print the table of a suite as it stands in the database, and return it.

    Raises:
        InputError: the choice does not fit the suite.
    """
    import typer
    from rich.console import Console

    from db.report.formats import as_json as json_of
    from db.report.terminal import print_table

    view = build_view(suite, ask(suite, choice, settings, store), store, settings)
    if as_json:
        typer.echo(json_of(view))
    else:
        print_table(view, console or Console(highlight=False))
    return view


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


def build_view(suite: Suite, asked: Sequence[Asked], store: Store, settings: Settings) -> View:
    """The table as numbers."""
    from db.report.subsets import with_subsets
    from db.report.view import build

    return with_subsets(build(suite, asked, store), settings.runs)


def ask(suite: Suite, choice: Choice, settings: Settings, store: Store) -> list[Asked]:
    """The cells with their trials; cells whose data are not here have the reason instead.

    Of a swept cell, the trials are those of the candidate that the dev scores in the database choose.

    Raises:
        InputError: the choice does not fit the suite, or none of its data are here.
    """
    from db.report.view import Asked
    from harness.errors import InputError

    asked: list[Asked] = []
    errors: dict[str, InputError] = {}
    for cell in suite.cells(choice):
        try:
            asked.append(Asked(cell, cell.trials(settings)) if cell.sweep is None else choose(cell, settings, store))
        except InputError as error:
            errors.setdefault(cell.request.data, error)
            asked.append(Asked(cell, (), str(error)))
    # Where other cells have trials on the same data, it is not the data that are missing.
    here = {one.cell.request.data for one in asked if one.reason is None}
    for data, told in errors.items():
        if data in here or not here:
            raise told
    return asked


def choose(cell: Cell, settings: Settings, store: Store) -> Asked:
    """A swept cell with the trials of the candidate that the dev scores in the database choose.

    Raises:
        InputError: a candidate's trials cannot be made here.
    """
    from db.report.view import Asked
    from db.selection import select

    selection = select(cell, settings, store)
    chosen = selection.chosen
    if chosen is None:
        return Asked(cell, (), selection=selection)
    return Asked(chosen.cell, chosen.trials, selection=selection)
