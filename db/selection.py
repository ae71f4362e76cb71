"""The choice of a swept cell: which of its candidates has the best dev score. No test score is ever looked at here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.settings import Settings
from harness.suite import Cell
from harness.sweep import Params, Sweep
from harness.task import Metric, outline_of
from harness.trial import Trial, TrialState

if TYPE_CHECKING:
    from db.store import Store, TrialRow

PRUNED = "pruned: "
"""How the reason begins of a trial that was cancelled because its candidate had fallen behind."""

UNDONE = ("running", "submitted", "queued", "cancelled", "not run")
"""Where trials of a candidate differ, the first of these is its state; with none of them it is settled."""


@dataclass(frozen=True)
class Candidate:
    """One configuration of those that a cell chooses from.

    Attributes:
        params: its values of what is swept.
        cell: the cell as if it had been asked for with these values.
        trials: one a seed.
        state: succeeded where every seed has a dev score; pruned or failed where one of them was, or had none.
        reason: why it failed or was pruned.
        dev: mean dev score over the seeds that have one.
        n: how many have one.
    """

    params: Params
    cell: Cell
    trials: Sequence[Trial]
    state: TrialState | Literal["not run", "pruned"]
    reason: str | None = None
    dev: float | None = None
    n: int = 0

    @property
    def settled(self) -> bool:
        """Whether it has won or lost, and nothing of it is still to come."""
        return self.state not in UNDONE


@dataclass(frozen=True)
class Selection:
    """What a swept cell chooses from, as it stands.

    Attributes:
        sweep: of the cell.
        candidates: in the order in which they are asked for.
        metric: of the task, by whose mean over the seeds on dev is chosen; None while there is no dev score.
        unasked: candidates that a search has still to ask for; how many of them differ is not known.
    """

    sweep: Sweep
    candidates: tuple[Candidate, ...]
    metric: Metric | None
    unasked: int = 0

    @property
    def settled(self) -> bool:
        """Whether all candidates have won or lost."""
        return not self.unasked and all(one.settled for one in self.candidates)

    @property
    def chosen(self) -> Candidate | None:
        """The best that succeeded, of equals the first; None before all are settled, or where all have lost."""
        if not self.settled or self.metric is None:
            return None
        scores = {place: one.dev for place, one in enumerate(self.candidates) if one.state == "succeeded"}
        best = max if self.metric.higher_is_better else min
        return self.candidates[best(scores, key=lambda place: scores[place] or 0.0)] if scores else None


def select(cell: Cell, settings: Settings, store: Store) -> Selection:
    """What a swept cell chooses from.

    Raises:
        InputError: a candidate's trials cannot be made here, or what samples them is not installed.
    """
    assert cell.sweep is not None
    if cell.sweep.is_grid:
        return look(cell, cell.sweep.grid(), settings, store)
    from db.study import replay

    return replay(cell, settings, store).selection


def look(cell: Cell, every: Iterable[Params], settings: Settings, store: Store) -> Selection:
    """How the candidates with these values stand; raises as `select`."""
    from db.query import final_values

    assert cell.sweep is not None
    made = [(params, one, one.trials(settings)) for params in every for one in [cell.at(params)]]
    ids = [trial.id for _, _, trials in made for trial in trials]
    values: dict[str, float | None] = {}
    selecting: Metric | None = None
    # The first of the task's metrics that was measured on dev is what selects the weights of a run, too.
    for metric in outline_of(cell.request.task).metrics:
        if metric.higher_is_better is not None and (values := final_values(store, ids, f"dev/{metric.name}")):
            selecting = metric
            break
    states = store.states(ids)
    return Selection(cell.sweep, tuple(_judged(*one, states, values) for one in made), selecting)


def _judged(
    params: Params,
    cell: Cell,
    trials: Sequence[Trial],
    rows: Mapping[str, TrialRow],
    values: Mapping[str, float | None],
) -> Candidate:
    from db.query import summarize

    there = [rows[trial.id] for trial in trials if trial.id in rows]
    states = {row.state for row in there}
    pruned = [row.reason for row in there if is_pruned(row)]
    scores = [values.get(row.id) for row in there if row.state == "succeeded"]
    summary = summarize(scores)

    def judged(state: TrialState | Literal["not run", "pruned"], reason: str | None = None) -> Candidate:
        return Candidate(params, cell, trials, state, reason, summary.mean, summary.n)

    if pruned and not states & {"running", "submitted", "queued"}:
        return judged("pruned", (pruned[0] or "").removeprefix(PRUNED))
    if len(there) < len(trials) or states & set(UNDONE):
        return judged(next((state for state in UNDONE if state in states), "not run"))
    lost = next((row for row in there if row.state != "succeeded"), None)
    if lost is not None:
        return judged("failed", lost.reason)
    return judged("succeeded") if summary.n == len(trials) else judged("failed", "a run gave no finite dev score")


def is_pruned(row: TrialRow) -> bool:
    """Whether a trial was cancelled because its candidate had fallen behind."""
    return row.state == "cancelled" and (row.reason or "").startswith(PRUNED)
