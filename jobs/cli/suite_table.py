"""The table that a command is about: of a suite's requests, or else its published values."""

from __future__ import annotations

from collections.abc import Sequence

from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.requests import SuiteTable, look_up
from dropbench.db.schema.connection import reading
from dropbench.db.store.requests import suites_of
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.suites.suite import is_suite, load_suite, name_of
from dropbench.harness.trials.recipe import default_preset
from dropbench.jobs.queue.request import published_request


def suite_table(
    store: Store,
    suite: str | None,
    preset: str | None = None,
    request: str | None = None,
    *,
    data: Sequence[str] = (),
    models: Sequence[str] = (),
) -> SuiteTable:
    """Return the table of a suite, or of one request, as it was requested; without a request, the published values.

    Args:
        store: the database.
        suite: name or file of the suite; it is only read if there is no request.
        preset: the preset; None: that of the newest request.
        request: the id of a request, or its beginning.
        data: only these data sets.
        models: only these models.

    Raises:
        InputError: there is no such suite, preset, request, data set or model, or neither a suite nor a request.
    """
    if request is None and not suite:
        with reading(store.engine) as connection:
            names = suites_of(connection)
        known = f"the database has trials of {', '.join(names)}" if names else "the database has no trials of a suite"
        raise InputError(f"report: expected a SUITE or --request ID; {known}")
    table = look_up(store, name_of(suite or ""), preset, request)
    if table is None:
        shipped = load_suite(suite or "")
        published = published_request(shipped, preset or default_preset(shipped.presets))
        others = look_up(store, name_of(suite or ""))
        notes = [f"other trials of this suite: `--preset {others.request.preset}`"] if others is not None else []
        table = SuiteTable((published,), [CellTrials(cell, ()) for cell in published.cells], notes)
    elif suite and table.request.suite.name != name_of(suite):
        raise InputError(f"--request {request}: a request of suite '{table.request.suite.name}', not of {suite}")
    return table.only(data, models)


def has_table(store: Store, name: str) -> bool:
    """Return whether a text is a suite: one of DropBench, a file, or one with a request in the database."""
    with reading(store.engine) as connection:
        return is_suite(name) or name in suites_of(connection)
