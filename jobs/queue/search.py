"""Hyperparameter searches while trials run: request the next candidates, and cancel those that the pruner rejects.

All state is in the database, so that another process can continue a search.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import sqlalchemy

from db.schema.connection import reading
from db.schema.tables import Metrics
from db.store.rows import in_list
from db.store.store import Enqueued, Store
from db.tuning.candidates import PRUNED, Candidate, is_pruned
from db.tuning.select import select
from harness.settings import Settings
from harness.suites.cell import Cell
from harness.trials.trial import FINAL_STATES, Trial
from jobs.queue.operations import cancel, enqueue
from jobs.queue.reconcile import collect


@dataclass
class _SearchedCell:
    """A cell, its open trials by id, its remaining candidates, and the data of its last replay."""

    cell: Cell
    open: dict[str, Trial] = field(default_factory=dict)
    remaining: int = 0
    replayed: object = None

    @property
    def prunes(self) -> bool:
        return self.cell.sweep is not None and self.cell.sweep.search.pruner != "none"


class Searches:
    """The searches of some cells by Optuna, restored from the database; trials in `others` are never pruned.

    Attributes:
        enqueued: ids of all trials that were enqueued here.
    """

    def __init__(self, store: Store, settings: Settings, cells: Sequence[Cell], others: Collection[str] = ()) -> None:
        self.store, self.settings = store, settings
        self.searched = [_SearchedCell(cell) for cell in cells]
        self.others = frozenset(others)
        self.pruned: set[str] = set()
        self.enqueued = Enqueued([], [], [])

    @property
    def remaining(self) -> int:
        """Return the number of candidates still to come, of all cells."""
        return sum(searched.remaining for searched in self.searched)

    def enqueue(self, items: Sequence[tuple[Trial, str | None]]) -> None:
        """Enqueue trials, each with its suite; errors as in `jobs.queue.operations.enqueue`."""
        for name, ids in vars(enqueue(self.store, self.settings, items)).items():
            getattr(self.enqueued, name).extend(ids)

    def ask(self) -> dict[str, Trial]:
        """Enqueue the next candidates of cells whose requested trials have ended, and cancel pruned candidates.

        Returns:
            the newly open trials by id, queued or about to end.

        Raises:
            InputError: Optuna is not installed, or a candidate's trials cannot be created here.
        """
        new: dict[str, Trial] = {}
        while opened := self._update():
            # Results of earlier runs are imported at once and may complete the batch.
            self.enqueue([item for item in opened if item[0].id not in self.pruned])
            new |= {trial.id: trial for trial, _ in opened}
        return new

    def _update(self) -> list[tuple[Trial, str | None]]:
        """Replay the cells with new data; return the newly open trials, each with its suite."""
        if any(searched.prunes for searched in self.searched):
            collect(self.store, self.settings, thorough=True)
        before = {id for searched in self.searched for id in searched.open}
        for searched in self.searched:
            states = {id: row.state for id, row in self.store.states(list(searched.open)).items()}
            data = (states, self._count_dev_points(searched.open) if searched.prunes else 0)
            if data != searched.replayed and (searched.prunes or FINAL_STATES.issuperset(states.values())):
                searched.replayed = data
                self._replay(searched)
        return [
            (trial, searched.cell.suite)
            for searched in self.searched
            for id, trial in searched.open.items()
            if id not in before
        ]

    def _replay(self, searched: _SearchedCell) -> None:
        selection = select(searched.cell, self.settings, self.store)
        searched.remaining = selection.remaining
        trials = {
            trial.id: trial for candidate in selection.candidates if not candidate.settled for trial in candidate.trials
        }
        for candidate, reason in selection.to_prune:
            self._prune(searched, candidate, reason)
        rows = self.store.states(list(trials))
        searched.open = {id: trial for id, trial in trials.items() if id not in rows or not is_pruned(rows[id])}

    def _prune(self, searched: _SearchedCell, candidate: Candidate, reason: str) -> None:
        """Cancel the trials of a candidate, unless another cell or suite requests one of them."""
        ids = [trial.id for trial in candidate.trials]
        requested = self.others.union(*(other.open for other in self.searched if other is not searched))
        suites = {name for names in self.store.suites(ids).values() for name in names}
        if requested.isdisjoint(ids) and suites <= {searched.cell.suite} and not self.pruned.issuperset(ids):
            self.pruned.update(ids)
            cancel(self.store, self.settings, ids, PRUNED + reason)

    def _count_dev_points(self, ids: Collection[str]) -> int:
        query = sqlalchemy.select(sqlalchemy.func.count()).where(Metrics.c.name.like("dev/%"))
        with reading(self.store.engine) as connection:
            return connection.scalar(query.where(in_list(connection, Metrics.c.trial_id, ids))) or 0
