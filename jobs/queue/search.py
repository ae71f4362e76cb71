"""Hyperparameter searches while trials run: request the next candidates, and cancel those that the pruner rejects.

A candidate that was chosen by seeds of its own is requested again with the seeds of its cell.

All state is in the database, so that another process can continue a search. The next candidates of cells are a request
that extends the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Metrics
from dropbench.db.store.rows import in_list
from dropbench.db.store.store import Enqueued, Store
from dropbench.db.tuning.propose import propose
from dropbench.db.tuning.select import PRUNED, Candidate, is_pruned
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.settings import Settings
from dropbench.harness.suites.request import Request, RequestedCandidate, RequestedCell
from dropbench.harness.suites.search_space import Params
from dropbench.harness.trials.trial import FINAL_STATES, Trial
from dropbench.jobs.queue.operations import cancel, enqueue
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.queue.request import Requested, candidate_of


@dataclass
class _SearchedCell:
    """A cell with its known candidates, the ids of its open trials, and the data of its last replay.

    Attributes:
        to_choose: 1 if the chosen candidate has yet to be requested with the seeds of the cell, else 0.
    """

    cell: RequestedCell
    open: list[str] = field(default_factory=list)
    replayed: object = None
    to_choose: int = 0

    @property
    def prunes(self) -> bool:
        return self.cell.sweep is not None and self.cell.sweep.search.pruner != "none"


class Searches:
    """A request, and the searches of its cells by Optuna, restored from the database.

    Attributes:
        request: the request as it was stored, when `start` has returned.
        trials: the trials of the request and of the candidates that were proposed since, by id.
        enqueued: ids of all trials that were enqueued here.
    """

    def __init__(self, store: Store, settings: Settings, requested: Requested, left_out: Collection[str] = ()) -> None:
        self.store, self.settings, self.left_out = store, settings, left_out
        self.request: Request = requested.request
        self.trials = dict(requested.trials)
        self.others = dict.fromkeys(requested.trials)  # never pruned
        self.asked = set(requested.trials)
        self.searched = [
            _SearchedCell(cell) for cell in requested.request.cells if cell.sweep is not None and not cell.sweep.is_grid
        ]
        self.pruned: set[str] = set()
        self.enqueued = Enqueued([], [], [])

    @property
    def remaining(self) -> int:
        """Return the number of candidates still to come, of columns with the same trials once."""
        return sum({trials_key(each.cell): each.cell.remaining + each.to_choose for each in self.searched}.values())

    def start(self) -> dict[str, Trial]:
        """Store the request with the candidates that are known, and enqueue its trials.

        Returns:
            the trials of cells without a search, and the open ones of the others, by id.

        Raises:
            InputError: as `dropbench.jobs.queue.operations.enqueue`; or Optuna is not installed, or a candidate's
                trials cannot be created here.
        """
        for searched in self.searched:
            self._replay(searched)
        known = {searched.cell.position: searched.cell for searched in self.searched}
        cells = [known.get(cell.position, cell) for cell in self.request.cells]
        trials = {id: self.trials[id] for id in self.others} | self._opened(self.searched)
        self.request = self._enqueue(self.request, cells, trials)
        return trials

    def ask(self) -> dict[str, Trial]:
        """Enqueue the next candidates of cells whose requested trials have ended, and cancel pruned candidates.

        Returns:
            the newly open trials by id, queued or about to end.

        Raises:
            InputError: a candidate's trials cannot be created here.
        """
        new: dict[str, Trial] = {}
        while grown := self._update():
            # Results of earlier runs are imported at once and may complete the batch.
            opened = self._opened(grown)
            extension = self.request.model_copy(update={"extends": self.request.id, "created_at": utc_now_iso()})
            self._enqueue(extension, [searched.cell for searched in grown], opened)
            new |= opened
        return new

    def _opened(self, cells: Iterable[_SearchedCell]) -> dict[str, Trial]:
        """Return the open trials of cells that were not returned before."""
        ids = [id for searched in cells for id in searched.open if id not in self.asked]
        self.asked.update(ids)
        return {id: self.trials[id] for id in ids}

    def _enqueue(self, request: Request, cells: Sequence[RequestedCell], trials: Mapping[str, Trial]) -> Request:
        kept = {id: trial for id, trial in trials.items() if id not in self.pruned}
        requested = Requested(request.model_copy(update={"cells": tuple(cells)}), kept)
        enqueued, stored = enqueue(self.store, self.settings, requested, self.left_out)
        for name, added in vars(enqueued).items():
            getattr(self.enqueued, name).extend(added)
        return stored

    def _update(self) -> list[_SearchedCell]:
        """Replay the cells with new data; return those that have new candidates."""
        if any(searched.prunes for searched in self.searched):
            collect(self.store, self.settings, thorough=True)
        grown = []
        for searched in self.searched:
            before = len(searched.cell.requested)
            data = self._data(searched)
            states = data[0]
            if data != searched.replayed and (searched.prunes or FINAL_STATES.issuperset(states.values())):
                self._replay(searched)
            if len(searched.cell.requested) > before:
                grown.append(searched)
        return grown

    def _data(self, searched: _SearchedCell) -> tuple[dict[str, str], int]:
        """Return what a replay depends on: the states of the open trials, and the number of their dev scores."""
        states = {id: str(row.state) for id, row in self.store.states(searched.open).items()}
        return states, self._count_dev_points(searched.open) if searched.prunes else 0

    def _replay(self, searched: _SearchedCell) -> None:
        def request(params: Params, cell: RequestedCell) -> RequestedCandidate:
            trials = cell.trials(self.settings)
            self.trials |= {trial.id: trial for trial in trials}
            return candidate_of(params, trials)

        def make(params: Params) -> RequestedCandidate:
            return request(params, searched.cell.candidate(params))

        data = self._data(searched)
        metrics = self.request.metrics[searched.cell.request.task]
        selection = propose(searched.cell, make, metrics, self.store)
        candidates = tuple(
            RequestedCandidate(params=dict(each.params), config=each.config, trials=each.ids)
            for each in selection.candidates
        )
        own_seeds = searched.cell.sweep is not None and bool(searched.cell.sweep.seeds)
        best = selection.chosen if own_seeds else None
        chosen = request(best.params, searched.cell.with_params(best.params)) if best is not None else None
        update = {"candidates": candidates, "remaining": selection.remaining, "chosen": chosen}
        searched.to_choose = int(own_seeds and not selection.settled)
        searched.cell = searched.cell.model_copy(update=update)
        searched.replayed = data
        for candidate, reason in selection.to_prune:
            self._prune(searched, candidate, reason)
        ids = [id for candidate in selection.candidates if not candidate.settled for id in candidate.ids]
        ids += chosen.trials if chosen is not None else ()
        rows = self.store.states(ids)
        searched.open = [id for id in ids if id not in rows or not is_pruned(rows[id])]

    def _prune(self, searched: _SearchedCell, candidate: Candidate, reason: str) -> None:
        """Cancel the trials of a candidate, unless another cell or suite requests one of them."""
        ids = candidate.ids
        requested = set(self.others).union(*(other.open for other in self.searched if other is not searched))
        suites = {name for names in self.store.suites(ids).values() for name in names}
        if requested.isdisjoint(ids) and suites <= {searched.cell.suite} and not self.pruned.issuperset(ids):
            self.pruned.update(ids)
            cancel(self.store, self.settings, ids, PRUNED + reason)

    def _count_dev_points(self, ids: Collection[str]) -> int:
        query = sqlalchemy.select(sqlalchemy.func.count()).where(Metrics.c.name.like("dev/%"))
        with reading(self.store.engine) as connection:
            return connection.scalar(query.where(in_list(connection, Metrics.c.trial_id, ids))) or 0


def trials_key(cell: RequestedCell) -> tuple[str, str]:
    """Return what cells have in common that show several metrics of the same trials."""
    return cell.row, cell.request.model_dump_json()
