"""Searches while trials run: what is to be asked for next, and what is given up. Nothing of it has to stay alive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select

from db.connection import reading
from db.models import Metrics
from db.rows import among
from db.selection import PRUNED, Candidate, is_pruned
from db.store import Store
from harness.settings import Settings
from harness.suite import Cell
from harness.trial import FINAL_STATES, Trial
from jobs.collect import collect
from jobs.queue import cancel, enqueue


@dataclass
class _Searched:
    """A cell, its open trials by id, the candidates to come, and what was known when it was last looked at."""

    cell: Cell
    open: dict[str, Trial] = field(default_factory=dict)
    unasked: int = 0
    known: object = None

    @property
    def prunes(self) -> bool:
        return self.cell.sweep is not None and self.cell.sweep.search.pruner != "none"


class Searches:
    """The cells that Optuna asks for; made anew from the database, it goes on where another process left off.

    Args:
        store: the database.
        settings: where the runs and the data are.
        cells: the cells.
        others: ids of trials that are asked for apart from these, and so never given up.

    Attributes:
        added, present, requeued: ids of the trials that were asked for, as `db.store.Enqueued` has them.
    """

    def __init__(self, store: Store, settings: Settings, cells: Sequence[Cell], others: Collection[str] = ()) -> None:
        self.store, self.settings = store, settings
        self.searched = [_Searched(cell) for cell in cells]
        self.others = frozenset(others)
        self.given_up: set[str] = set()
        self.added: list[str] = []
        self.present: list[str] = []
        self.requeued: list[str] = []

    @property
    def unasked(self) -> int:
        """Candidates that are still to come, of all cells."""
        return sum(one.unasked for one in self.searched)

    def ask(self) -> dict[str, Trial]:
        """Ask for what comes next where all that was asked for has ended, and give up what the pruners find behind.

        Returns:
            the trials that were not known as open before, by id; they are in the queue, or about to end.

        Raises:
            InputError: Optuna is not installed, or a candidate's trials cannot be made here.
        """
        new: dict[str, Trial] = {}
        while fresh := self._look():
            # What others have run already is taken over at once, and may be all that was asked for.
            found = enqueue(self.store, self.settings, [item for item in fresh if item[0].id not in self.given_up])
            self.added += found.added
            self.present += found.present
            self.requeued += found.requeued
            new |= {trial.id: trial for trial, _ in fresh}
        return new

    def _look(self) -> list[tuple[Trial, str | None]]:
        """The trials that were not known as open before."""
        if any(one.prunes for one in self.searched):
            collect(self.store, self.settings, thorough=True)
        before = {id for one in self.searched for id in one.open}
        for one in self.searched:
            states = {id: row.state for id, row in self.store.states(list(one.open)).items()}
            known = (states, self._points(one.open) if one.prunes else 0)
            if known != one.known and (one.prunes or FINAL_STATES.issuperset(states.values())):
                one.known = known
                self._replay(one)
        return [(trial, one.cell.suite) for one in self.searched for id, trial in one.open.items() if id not in before]

    def _replay(self, one: _Searched) -> None:
        from db.study import replay

        found = replay(one.cell, self.settings, self.store)
        one.unasked = found.selection.unasked
        trials = {
            trial.id: trial
            for candidate in found.selection.candidates
            if not candidate.settled
            for trial in candidate.trials
        }
        for candidate, reason in found.behind:
            self._give_up(one, candidate, reason)
        rows = self.store.states(list(trials))
        one.open = {id: trial for id, trial in trials.items() if id not in rows or not is_pruned(rows[id])}

    def _give_up(self, one: _Searched, candidate: Candidate, reason: str) -> None:
        """Cancel the trials of a candidate, but for one that somebody else asks for, too."""
        ids = [trial.id for trial in candidate.trials]
        wanted = self.others.union(*(other.open for other in self.searched if other is not one))
        suites = {name for names in self.store.suites(ids).values() for name in names}
        if wanted.isdisjoint(ids) and suites <= {one.cell.suite} and not self.given_up.issuperset(ids):
            self.given_up.update(ids)
            cancel(self.store, self.settings, ids, PRUNED + reason)

    def _points(self, ids: Collection[str]) -> int:
        with reading(self.store.engine) as connection:
            query = select(func.count()).where(among(connection, Metrics.c.trial_id, ids), Metrics.c.name.like("dev/%"))
            return connection.scalar(query) or 0
