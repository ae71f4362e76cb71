"""Choose the candidate of a swept cell with the best dev score. Test scores are never read here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from db.tuning.candidates import Selection, evaluate
from harness.settings import Settings
from harness.suites.cell import Cell

if TYPE_CHECKING:
    from db.store.store import Store


def select(cell: Cell, settings: Settings, store: Store) -> Selection:
    """Return the candidates of a swept cell and the choice among them.

    Raises:
        InputError: a candidate's trials cannot be created on this machine, or the sampler is not installed.
    """
    assert cell.sweep is not None
    if cell.sweep.is_grid:
        return evaluate(cell, cell.sweep.grid(), settings, store)
    from db.tuning.optuna_study import replay

    return replay(cell, settings, store).selection
