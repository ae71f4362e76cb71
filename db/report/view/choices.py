"""The candidates of tuned presets for queries that do not know suites: which were chosen, and which do not count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dropbench.db.report.view.build import choosing
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.requests import SuiteTable, resolve, tables_of
from dropbench.db.schema.connection import reading
from dropbench.db.store.requests import suites_of
from dropbench.db.store.store import Store
from dropbench.harness.suites.search_space import RECIPE_PREFIX


@dataclass
class Choices:
    """The configurations of tuned presets, by their ids.

    Attributes:
        chosen: the chosen candidates, with the overrides of the baseline of their column, without its learning rate.
        keys: the swept keys of the same candidates.
        others: the other candidates, and all of columns that still choose.
        notes: the columns that still choose.
    """

    chosen: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def choices_of(store: Store) -> Choices:
    """Return the choices in a database, which may have reference trials, too."""
    found = Choices()
    with reading(store.engine) as connection:
        names = suites_of(connection)
    for table in (table for name in names for table in tables_of(store, name)):
        if table.newest.tuned:
            _add(found, SuiteTable(table.requests, resolve(table, store)))
    found.others -= found.chosen.keys()
    return found


def _add(found: Choices, table: SuiteTable) -> None:
    unfinished = choosing(table)
    found.notes += unfinished.values()
    bases = {cell.cell.column: _own_overrides(cell) for cell in reversed(table.cells) if cell.cell.baseline}
    for cell in table.cells:
        candidates = cell.selection.candidates if cell.selection is not None else ()
        found.others |= {candidate.config for candidate in candidates}
        if (cell.cell.column, cell.origin) not in unfinished:
            base = bases.get(cell.cell.column, _own_overrides(cell))
            chosen = cell.selection.chosen if cell.selection is not None else None
            configs = [chosen.config] if chosen is not None else [each.config for each in cell.cell.candidates]
            found.chosen |= dict.fromkeys(configs if cell.ids else (), base)
            found.keys |= dict.fromkeys(
                configs, tuple(cell.selection.sweep.space if cell.selection is not None else ())
            )


def _own_overrides(cell: CellTrials) -> dict[str, Any]:
    """Return the overrides of a cell's trials without those of the candidate."""
    overrides = dict(cell.cell.request.overrides)
    chosen = cell.selection.chosen if cell.selection is not None else None
    for key in chosen.params if chosen is not None else ():
        overrides.pop(key.removeprefix(RECIPE_PREFIX), None)
    return overrides
