"""Propose the candidates of a search from the results in the database: those of its stages, or Optuna's.

Random and TPE samplers, and pruners, are Optuna's, by its ask-and-tell interface. Studies are not stored. Each call
replays the study from the results in the database: a seeded sampler is asked for a batch of candidates, and gets their
results in order once all of the batch are settled. Equal results therefore give equal candidates, independent of who
replays the study and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any

import sqlalchemy

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import FINAL, Metrics
from dropbench.db.statistics.seeds import summarize
from dropbench.db.store.rows import in_list
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import Candidate, Selection, evaluate
from dropbench.harness.regularizers.spec import Scalar
from dropbench.harness.suites.request import RequestedCandidate, RequestedCell
from dropbench.harness.suites.search_space import Params, Range, Search, Sweep
from dropbench.harness.trials.metric import Metric, MetricName

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

DIGITS = 4
"""Significant digits of sampled numbers; tables show exactly the value that was run."""


def propose(
    cell: RequestedCell, make: Callable[[Params], RequestedCandidate], metrics: Sequence[Metric], store: Store
) -> Selection:
    """Return the candidates of a search, each once, and the choice among them.

    Args:
        cell: the cell, whose stored candidates are not read.
        make: returns the candidate with some values; called once per proposal.
        metrics: the metrics of the cell's task.
        store: the database.
    """
    sweep = cell.sweep
    assert sweep is not None
    search = sweep.search
    if sweep.stages:
        return _by_stages(cell, sweep, make, metrics, store)
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
        selection = evaluate(cell, [make(params) for params in sampled], metrics, store)
        metric = metric or selection.metric
        for candidate in selection.candidates:
            by_params.setdefault(tuple(candidate.params.items()), candidate)
        for trial, candidate in zip(batch, selection.candidates, strict=True):
            if candidate.settled:
                _tell(study, trial, candidate, _curve(candidate, search, metric, store), metric)
        if not all(candidate.settled for candidate in selection.candidates):
            to_prune = _to_prune(batch, selection.candidates, search, metric, store)
            return Selection(sweep, tuple(by_params.values()), metric, total - asked, to_prune)
    return Selection(sweep, tuple(by_params.values()), metric)


def _by_stages(
    cell: RequestedCell,
    sweep: Sweep,
    make: Callable[[Params], RequestedCandidate],
    metrics: Sequence[Metric],
    store: Store,
) -> Selection:
    """Return the candidates of the stages that can begin, each once, and the choice among them."""
    made: dict[tuple[Any, ...], RequestedCandidate] = {}
    selection, best = Selection(sweep, (), None), sweep.recipe
    for number in range(sweep.stages):
        for params in sweep.stage(number, best):
            if tuple(params.items()) not in made:
                made[tuple(params.items())] = make(params)
        selection = evaluate(cell, [*made.values()], metrics, store)
        if not selection.settled:
            return replace(selection, remaining=sweep.size - len(made))
        if selection.chosen is None:
            break
        best = dict(selection.chosen.params)
    return selection


def _to_prune(
    batch: Sequence[optuna.Trial],
    candidates: Sequence[Candidate],
    search: Search,
    metric: Metric | None,
    store: Store,
) -> tuple[tuple[Candidate, str], ...]:
    """Return the open candidates of a batch that the pruner would stop, each once, with the reason."""
    rejected: dict[tuple[Any, ...], tuple[Candidate, str]] = {}
    for trial, candidate in zip(batch, candidates, strict=True):
        curve = [] if candidate.settled else _curve(candidate, search, metric, store)
        if not curve or metric is None:
            continue
        _report(trial, curve, metric)
        if trial.should_prune():
            reason = f"dev {metric.name} {curve[-1]:.4g} after {len(curve)} evaluations, {search.pruner} pruner"
            rejected[tuple(candidate.params.items())] = candidate, reason
    return tuple(rejected.values())


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
        ids = in_list(connection, Metrics.c.trial_id, candidate.ids)
        for id, value in connection.execute(query.where(ids).order_by(Metrics.c.trial_id, Metrics.c.step)):
            points.setdefault(id, []).append(value)
    means = (summarize(values).mean for values in zip_longest(*points.values()))
    return [mean for mean in takewhile(lambda mean: mean is not None, means) if mean is not None]
