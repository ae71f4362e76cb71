"""The trials of a request that a reference has already."""

from __future__ import annotations

from dataclasses import replace

from db.queries.recorded import NO_DATA
from db.reference.load import open_reference
from db.store.store import Store
from db.tuning.select import select
from harness.errors import InputError, count_of
from harness.settings import Settings
from harness.suites.cell import Cell
from jobs.cli.trial_request import TrialRequestSet


def without_reference(request: TrialRequestSet, settings: Settings, location: str) -> tuple[TrialRequestSet, str]:
    """Return a request without the trials and searches that a reference has, and a line on their number.

    Raises:
        InputError: as `db.reference.load.open_reference`.
    """
    with open_reference(location) as reference:
        known = reference.states([trial.id for trial, _ in request.items]).keys()
        apart = replace(settings, data=NO_DATA, folders={})
        searched = [cell for cell in request.searched if not _is_settled(cell, apart, reference)]
    items = [(trial, suite) for trial, suite in request.items if trial.id not in known]
    count = count_of(len(request.items), "trial")
    if known or len(searched) < len(request.searched):
        line = f"{len(known)} of {count} are in the reference and are not trained"
    else:
        line = (
            f"none of {count} is in the reference, which is of other data, settings or result versions:"
            f" `dropbench results --with {location}` lists it"
        )
    return replace(request, items=items, searched=searched), line


def _is_settled(cell: Cell, settings: Settings, reference: Store) -> bool:
    try:
        return select(cell, settings, reference).settled
    except InputError:  # no trial of it
        return False
