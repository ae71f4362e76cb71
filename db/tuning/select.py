"""Choose the candidate of a swept cell with the best dev score. Test scores are never read here.

A sampler or pruner is Optuna's, by its ask-and-tell interface. Studies are not stored. Each call replays the study from
the results in the database: a seeded sampler is asked for a batch of candidates, and gets their results in order
once all of the batch are settled. Equal results therefore give equal candidates, independent of who replays the study
and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy

from db.queries.recorded import RecordedTrials, trials_of
from db.queries.results import final_values
from db.queries.statistics import summarize
from db.schema.connection import reading
from db.schema.tables import FINAL, Metrics
from db.store.rows import in_list
from db.store.store import Store, TrialRow
from harness.regularizers.spec import Scalar
from harness.settings import Settings
from harness.suites.cell import Cell
from harness.suites.search_space import Params, Range, Search, Sweep
from harness.trials.metric import Metric, MetricName
from harness.trials.task import spec_of
from harness.trials.trial import Trial, TrialState

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

DIGITS = 4
"""Significant digits of sampled numbers; tables show exactly the value that was run."""

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
        trials: one per seed.
        state: succeeded if every seed has a dev score; pruned, skipped or failed if one of them was, or has none.
        reason: why it failed or was pruned.
        dev: mean dev score over the seeds that have one.
        n: number of seeds that have one.
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
        """The best candidate that succeeded, of equals the first; None until all are settled or if none succeeded."""
        if not self.settled or self.metric is None:
            return None
        score = self.metric.score
        succeeded = [candidate for candidate in self.candidates if candidate.state == "succeeded"]
        return max(succeeded, key=lambda candidate: score(candidate.dev or 0.0), default=None)


def evaluate(
    cell: Cell, space: Iterable[Params], settings: Settings, store: Store, recorded: RecordedTrials
) -> Selection:
    """Return the current state of the candidates with these values. Raise as `select` does."""
    assert cell.sweep is not None
    fixed_cells = [(params, cell.with_params(params)) for params in space]
    of_cells = trials_of((fixed for _, fixed in fixed_cells), settings, recorded)
    candidates = [(*fixed_cell, trials) for fixed_cell, trials in zip(fixed_cells, of_cells, strict=True)]
    ids = [trial.id for _, _, trials in candidates for trial in trials]
    values: dict[str, float | None] = {}
    selection_metric: Metric | None = None
    # The first of the task's metrics that was measured on dev also selects the weights of a run.
    for metric in spec_of(cell.request.task).metrics:
        name = str(MetricName("dev", metric.name))
        if metric.higher_is_better is not None and (values := final_values(store, ids, name)):
            selection_metric = metric
            break
    rows = store.states(ids)
    evaluated = tuple(_candidate(*candidate, rows, values) for candidate in candidates)
    return Selection(cell.sweep, evaluated, selection_metric)


def _candidate(
    params: Params,
    cell: Cell,
    trials: Sequence[Trial],
    rows: Mapping[str, TrialRow],
    values: Mapping[str, float | None],
) -> Candidate:
    own = [rows[trial.id] for trial in trials if trial.id in rows]
    states = {row.state for row in own}
    pruned = [row.reason for row in own if is_pruned(row)]
    summary = summarize(values.get(row.id) for row in own if row.state == "succeeded")

    def candidate(state: TrialState | Literal["not run", "pruned"], reason: str | None = None) -> Candidate:
        return Candidate(params, cell, trials, state, reason, summary.mean, summary.n)

    if pruned and not states & {"running", "submitted", "queued"}:
        return candidate("pruned", (pruned[0] or "").removeprefix(PRUNED))
    if len(own) < len(trials) or states & set(OPEN_STATES):
        return candidate(next((state for state in OPEN_STATES if state in states), "not run"))
    lost = next((row for row in own if row.state != "succeeded"), None)
    if lost is not None:
        return candidate("skipped" if lost.state == "skipped" else "failed", lost.reason)
    return candidate("succeeded") if summary.n == len(trials) else candidate("failed", "a run gave no finite dev score")


def is_pruned(row: TrialRow) -> bool:
    """Return whether a trial was cancelled because its candidate was pruned."""
    return row.state == "cancelled" and (row.reason or "").startswith(PRUNED)


def select(cell: Cell, settings: Settings, store: Store, recorded: RecordedTrials | None = None) -> Selection:
    """Return the candidates of a swept cell, each once, and the choice among them.

    A sampler is asked for candidates, and gets their results, as far as there are results. The cells of a table share
    `recorded`; default: a new one.

    Raises:
        InputError: a candidate's trials cannot be created on this machine.
    """
    sweep = cell.sweep
    assert sweep is not None
    recorded = recorded or RecordedTrials(store)
    if sweep.is_grid:
        return evaluate(cell, sweep.grid(), settings, store, recorded)
    search = sweep.search
    study = _study(search)
    space = {key: _distribution(values, search) for key, values in sweep.space.items()}
    points = list(sweep.grid()) if search.sampler == "grid" else []
    for params in points:
        study.enqueue_trial(params)
    total = len(points) or search.candidates or 0
    size = search.batch if search.sampler == "tpe" else total  # the other samplers do not depend on results
    by_params: dict[tuple[Any, ...], Candidate] = {}
    metric: Metric | None = None
    asked = 0
    while asked < total:
        batch = [study.ask(space) for _ in range(min(size, total - asked))]
        asked += len(batch)
        sampled = [{key: _rounded(value, sweep.space[key]) for key, value in trial.params.items()} for trial in batch]
        selection = evaluate(cell, sampled, settings, store, recorded)
        metric = metric or selection.metric
        for candidate in selection.candidates:
            by_params.setdefault(tuple(candidate.params.items()), candidate)
        for trial, candidate in zip(batch, selection.candidates, strict=True):
            if candidate.settled:
                _tell(study, trial, candidate, _curve(candidate, search, metric, store), metric)
        if not all(candidate.settled for candidate in selection.candidates):
            to_prune: dict[tuple[Any, ...], tuple[Candidate, str]] = {}
            for trial, candidate in zip(batch, selection.candidates, strict=True):
                curve = [] if candidate.settled else _curve(candidate, search, metric, store)
                if not curve or metric is None:
                    continue
                _report(trial, curve, metric)
                if trial.should_prune():
                    reason = f"dev {metric.name} {curve[-1]:.4g} after {len(curve)} evaluations, {search.pruner} pruner"
                    to_prune[tuple(candidate.params.items())] = candidate, reason
            return Selection(sweep, tuple(by_params.values()), metric, total - asked, tuple(to_prune.values()))
    return Selection(sweep, tuple(by_params.values()), metric)


def _study(search: Search) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers, pruners = optuna.samplers, optuna.pruners
    # The constant liar keeps the candidates of a batch apart, which are sampled without each other's results.
    tpe = partial(samplers.TPESampler, constant_liar=True)
    by_name = {"none": pruners.NopPruner, "median": pruners.MedianPruner, "hyperband": pruners.HyperbandPruner}
    return optuna.create_study(
        study_name="sweep",  # Hyperband derives its brackets from it
        direction="maximize",
        sampler=(tpe if search.sampler == "tpe" else samplers.RandomSampler)(seed=search.seed),
        pruner=by_name[search.pruner](),
    )


def _distribution(values: tuple[Scalar, ...] | Range, search: Search) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(values, Range):
        return CategoricalDistribution(values)
    listed = values.values()
    if search.sampler == "grid":
        return CategoricalDistribution(listed or ())
    high = listed[-1] if listed else values.high
    if values.is_integer:
        return IntDistribution(int(values.low), int(high), log=values.log, step=int(values.step or 1))
    return FloatDistribution(values.low, high, log=values.log, step=values.step)


def _rounded(value: Scalar, values: tuple[Scalar, ...] | Range) -> Scalar:
    """Round a sampled number to the digits that tables show."""
    if not isinstance(values, Range) or not isinstance(value, float):
        return value
    return min(max(float(f"{value:.{10 if values.step else DIGITS}g}"), values.low), values.high)


def _tell(
    study: optuna.Study, trial: optuna.Trial, candidate: Candidate, curve: list[float], metric: Metric | None
) -> None:
    from optuna.trial import TrialState

    if candidate.state == "succeeded" and metric is not None and candidate.dev is not None:
        _report(trial, curve, metric)
        study.tell(trial, metric.score(candidate.dev))
    elif candidate.state == "pruned" and metric is not None:
        _report(trial, curve, metric)
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, state=TrialState.FAIL)


def _report(trial: optuna.Trial, curve: list[float], metric: Metric) -> None:
    # The study maximizes scores: it is created before the metric, and so its direction, is known.
    for number, value in enumerate(curve, 1):
        trial.report(metric.score(value), number)


def _curve(candidate: Candidate, search: Search, metric: Metric | None, store: Store) -> list[float]:
    """Return a candidate's dev scores by evaluation, each the mean over the seeds that have reached it."""
    if search.pruner == "none" or metric is None:
        return []
    query = sqlalchemy.select(Metrics.c.trial_id, Metrics.c.value).where(
        Metrics.c.step != FINAL, Metrics.c.name == str(MetricName("dev", metric.name))
    )
    points: dict[str, list[float | None]] = {}
    with reading(store.engine) as connection:
        ids = in_list(connection, Metrics.c.trial_id, [trial.id for trial in candidate.trials])
        for id, value in connection.execute(query.where(ids).order_by(Metrics.c.trial_id, Metrics.c.step)):
            points.setdefault(id, []).append(value)
    means = (summarize(values).mean for values in zip_longest(*points.values()))
    return [mean for mean in takewhile(lambda mean: mean is not None, means) if mean is not None]
