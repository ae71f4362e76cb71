"""Print the table of a suite, or the results of given trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from db.report.view.build import build_view, resolve_cells

if TYPE_CHECKING:
    from db.report.view.view import View
    from db.store.store import Store
    from harness.settings import Settings
    from harness.suites.cell import SuiteOptions
    from harness.suites.suite import Suite


def print_suite(
    suite: Suite, options: SuiteOptions, store: Store, settings: Settings, *, as_json: bool = False
) -> View:
    """Print the table of a suite from the database, and return it.

    Raises:
        InputError: the options do not fit the suite.
    """
    from rich.console import Console

    from db.report.formats import documents
    from db.report.formats.terminal import print_suite_table

    view = build_view(suite, resolve_cells(suite, options, settings, store), store, settings)
    if as_json:
        typer.echo(documents.as_json(view))
    else:
        print_suite_table(view, Console(highlight=False))
    return view


def print_trials(ids: Sequence[str], store: Store, *, as_json: bool = False) -> None:
    """Print the results of trials, as `dropbench results` does."""
    from db.queries.results import results
    from db.report.formats import listing

    rows = results(store, ids=ids)
    if as_json:
        typer.echo(listing.to_json(rows))
    else:
        above, table = listing.results_table(rows)
        listing.print_listing(table, above)
