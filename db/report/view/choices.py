"""The candidates of tuned presets for queries that do not know suites: which were chosen, and which do not count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from db.queries.declarations import load_known
from db.report.view.beside import with_trials
from db.report.view.build import choosing, resolve_cells
from db.report.view.cells import CellTrials
from db.report.view.run_options import options_of
from db.report.view.variants import variants_of
from db.schema.connection import reading
from db.schema.reference import Origin, stored_id
from db.schema.tables import Memberships
from db.store.store import Store
from harness.errors import InputError
from harness.settings import Settings
from harness.suites.search_space import RECIPE_PREFIX
from harness.suites.suite import Suite


@dataclass
class Choices:
    """The configurations of tuned presets, by their ids.

    Attributes:
        chosen: the chosen candidates, with the overrides of the baseline of their column, without its learning rate.
        others: the other candidates, and all of columns that still choose.
        notes: the columns that still choose.
    """

    chosen: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def choices_of(stores: Iterable[tuple[Store, Origin, Settings]]) -> Choices:
    """Return the choices in some databases, with ids as in a database that has the trials of all of them."""
    found = Choices()
    for store, origin, settings in stores:
        for suite, cells in _tuned(store, settings):
            if origin == "reference":
                cells = with_trials(cells, store)  # it does not say which regularizers fit no site
            unfinished = choosing(suite, cells)
            found.notes += unfinished.values()
            bases = {cell.cell.column: _own_overrides(cell) for cell in reversed(cells) if cell.cell.baseline}
            for cell in cells:
                candidates = cell.selection.candidates if cell.selection is not None else ()
                configs = {trial.config_id for candidate in candidates for trial in candidate.trials}
                found.others |= {stored_id(id, origin) for id in configs}
                if (cell.cell.column, cell.origin) not in unfinished:
                    base = bases.get(cell.cell.column, _own_overrides(cell))
                    found.chosen |= {stored_id(trial.config_id, origin): base for trial in cell.trials}
    found.others -= found.chosen.keys()
    return found


def _own_overrides(cell: CellTrials) -> dict[str, Any]:
    """Return the overrides of a cell's trials without those of the candidate."""
    overrides = dict(cell.trials[0].overrides) if cell.trials else {}
    chosen = cell.selection.chosen if cell.selection is not None else None
    for key in chosen.params if chosen is not None else ():
        overrides.pop(key.removeprefix(RECIPE_PREFIX), None)
    return overrides


def _tuned(store: Store, settings: Settings) -> Iterator[tuple[Suite, list[CellTrials]]]:
    """Yield the tables of tuned presets; those that cannot be requested any more are left out."""
    with reading(store.engine) as connection:
        names = connection.scalars(select(Memberships.c.suite).distinct().order_by(Memberships.c.suite)).all()
    for name in names:
        suite = load_known(name)
        if suite is None or not any(preset.tuned for preset in suite.presets.values()):
            continue
        for variant in variants_of(suite, store):
            if suite.presets[variant.preset].tuned:
                with suppress(InputError):
                    yield suite, resolve_cells(suite, options_of(suite, variant), settings, store)
