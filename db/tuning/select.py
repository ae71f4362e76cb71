"""Choose the candidate of a swept cell with the best dev score. Test scores are never read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dropbench.db.queries.results import final_values
from dropbench.db.statistics.seeds import equal, summarize
from dropbench.db.statistics.tuning_budget import expected_best
from dropbench.db.store.store import Store, TrialRow
from dropbench.harness.suites.request import RequestedCandidate, RequestedCell
from dropbench.harness.suites.search_space import Params, Sweep
from dropbench.harness.trials.metric import Metric, MetricName
from dropbench.harness.trials.trial import TrialState

PRUNED = "pruned: "
"""Prefix of the reason of a trial that was cancelled because its candidate was pruned."""

OPEN_STATES = ("running", "submitted", "queued", "cancelled", "not run")
"""If the states of a candidate's trials differ, the first of these is its state; without any of them it is settled."""


@dataclass(frozen=True)
class Candidate:
    """A configuration that a cell chooses from.

    Attributes:
        params: its values of the swept keys.
        cell: the cell with these values fixed.
        config: id of the configuration.
        ids: of its trials, one per seed.
        state: succeeded if every seed has a dev score; pruned, skipped or failed if one of them was, or has none.
        reason: why it failed or was pruned.
        dev: mean dev score over the seeds that have one.
        n: number of seeds that have one.
    """

    params: Params
    cell: RequestedCell
    config: str
    ids: tuple[str, ...]
    state: TrialState | Literal["not run", "pruned"]
    reason: str | None = None
    dev: float | None = None
    n: int = 0

    @property
    def settled(self) -> bool:
        """True if its state is final."""
        return self.state not in OPEN_STATES


@dataclass(frozen=True)
class Selection:
    """The current state of a swept cell's choice.

    Attributes:
        sweep: the cell's sweep.
        candidates: in the order in which they were requested.
        metric: the task's metric whose mean dev score decides; None while there is no dev score.
        remaining: candidates that a search has yet to request; some of them may turn out equal.
        to_prune: running candidates that the pruner would stop, each with the reason.
    """

    sweep: Sweep
    candidates: tuple[Candidate, ...]
    metric: Metric | None
    remaining: int = 0
    to_prune: tuple[tuple[Candidate, str], ...] = ()

    @property
    def settled(self) -> bool:
        """True if the state of every candidate is final."""
        return not self.remaining and all(candidate.settled for candidate in self.candidates)

    @property
    def skipped(self) -> bool:
        """True if the regularizer fits the cell with no candidate's values."""
        return self.settled and {candidate.state for candidate in self.candidates} == {"skipped"}

    @property
    def chosen(self) -> Candidate | None:
        """The best candidate that succeeded, of equals the first; None until all are settled or if none succeeded.

        Scores that differ by rounding alone are equal, as those of equal counts over seeds are.
        """
        if not self.settled or self.metric is None:
            return None
        scores = [(candidate, candidate.dev) for candidate in self.candidates if candidate.state == "succeeded"]
        values = [self.metric.score(dev) for _, dev in scores if dev is not None]
        best = self.metric.score(max(values, default=0.0))
        return next((candidate for candidate, dev in scores if dev is not None and equal(dev, best)), None)

    @property
    def expected_dev(self) -> list[float] | None:
        """Expected dev score of the best of k candidates, for k = 1 … n (`dropbench.db.statistics.tuning_budget`).

        None if the candidates are not a grid or random, as those of other samplers depend on each other, or if some are
        not done or lost.
        """
        scores = [candidate.dev for candidate in self.candidates if candidate.state == "succeeded"]
        complete = self.settled and len(scores) == len(self.candidates) > 1
        if not complete or self.metric is None or self.sweep.search.sampler == "tpe":
            return None
        score = self.metric.score
        return [score(value) for value in expected_best([score(value) for value in scores if value is not None])]


def select(cell: RequestedCell, metrics: Sequence[Metric], store: Store) -> Selection:
    """Return the candidates of a swept cell as a request has stored them, and the choice among them.

    Args:
        cell: the cell.
        metrics: the metrics of its task.
        store: the database.
    """
    return evaluate(cell, cell.candidates, metrics, store, cell.remaining)


def evaluate(
    cell: RequestedCell,
    candidates: Sequence[RequestedCandidate],
    metrics: Sequence[Metric],
    store: Store,
    remaining: int = 0,
) -> Selection:
    """Return the current state of some candidates of a cell."""
    assert cell.sweep is not None
    ids = [id for candidate in candidates for id in candidate.trials]
    values: dict[str, float | None] = {}
    selection_metric: Metric | None = None
    # The first one that was measured on dev also selects the weights of a run.
    for metric in (*filter(None, [cell.selected_by]), *metrics):
        name = str(MetricName("dev", metric.name))
        if metric.higher_is_better is not None and (values := final_values(store, ids, name)):
            selection_metric = metric
            break
    rows = store.states(ids)
    evaluated = tuple(_candidate(cell, candidate, rows, values) for candidate in candidates)
    return Selection(cell.sweep, evaluated, selection_metric, remaining)


def _candidate(
    cell: RequestedCell,
    requested: RequestedCandidate,
    rows: Mapping[str, TrialRow],
    values: Mapping[str, float | None],
) -> Candidate:
    fixed = cell.with_params(requested.params)
    if requested.changes is not None:
        fixed = fixed.model_copy(update={"changes": requested.changes})
    own = [rows[id] for id in requested.trials if id in rows]
    states = {row.state for row in own}
    pruned = [row.reason for row in own if is_pruned(row)]
    summary = summarize(values.get(row.id) for row in own if row.state == "succeeded")

    def candidate(state: TrialState | Literal["not run", "pruned"], reason: str | None = None) -> Candidate:
        params, config, ids = requested.params, requested.config, requested.trials
        return Candidate(params, fixed, config, ids, state, reason, summary.mean, summary.n)

    if pruned and not states & {"running", "submitted", "queued"}:
        return candidate("pruned", (pruned[0] or "").removeprefix(PRUNED))
    if not own and requested.skipped is not None:
        return candidate("skipped", requested.skipped)
    if len(own) < len(requested.trials) or states & set(OPEN_STATES):
        return candidate(next((state for state in OPEN_STATES if state in states), "not run"))
    lost = next((row for row in own if row.state != "succeeded"), None)
    if lost is not None:
        return candidate("skipped" if lost.state == "skipped" else "failed", lost.reason)
    if summary.n == len(requested.trials):
        return candidate("succeeded")
    return candidate("failed", "a run gave no finite dev score")


def is_pruned(row: TrialRow) -> bool:
    """Return whether a trial was cancelled because its candidate was pruned."""
    return row.state == "cancelled" and (row.reason or "").startswith(PRUNED)
