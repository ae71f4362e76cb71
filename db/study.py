"""Optuna's samplers and pruners, by ask and tell.

No study is kept: it is made anew each time from what the database knows of its candidates. They are asked for in
batches, of a sampler with a seed, and those of a batch are told in order when all of them have won or lost. So the same
results give the same candidates, whoever looks, and whenever.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from db.connection import reading
from db.models import FINAL, Metrics
from db.query import summarize
from db.rows import among
from db.selection import Candidate, Selection, look
from harness.errors import InputError
from harness.regularizers.spec import Scalar
from harness.settings import Settings
from harness.suite import Cell
from harness.sweep import Range, Search
from harness.task import Metric

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

    from db.store import Store

DIGITS = 4
"""Significant digits of sampled numbers: what a table shows is what was run."""


@dataclass(frozen=True)
class Replayed:
    """A study as it stands.

    Attributes:
        selection: its candidates, each once.
        behind: those that run and that the pruner would give up, with the reason.
    """

    selection: Selection
    behind: tuple[tuple[Candidate, str], ...] = ()


def replay(cell: Cell, settings: Settings, store: Store) -> Replayed:
    """Ask and tell as far as the results reach.

    Raises:
        InputError: Optuna is not installed, or a candidate's trials cannot be made.
    """
    sweep = cell.sweep
    assert sweep is not None
    search = sweep.search
    study = _study(search)
    space = {key: _distribution(values, search) for key, values in sweep.space.items()}
    points = list(sweep.grid()) if search.sampler == "grid" else []
    for params in points:
        study.enqueue_trial(params)
    wanted = len(points) or search.candidates or 0
    size = search.batch if search.sampler == "tpe" else wanted  # others depend on no result
    found: dict[tuple[Any, ...], Candidate] = {}
    metric: Metric | None = None
    asked = 0
    while asked < wanted:
        batch = [study.ask(space) for _ in range(min(size, wanted - asked))]
        asked += len(batch)
        drawn = [{key: _shown(value, sweep.space[key]) for key, value in trial.params.items()} for trial in batch]
        seen = look(cell, drawn, settings, store)
        metric = metric or seen.metric
        for candidate in seen.candidates:
            found.setdefault(tuple(candidate.params.items()), candidate)
        for trial, candidate in zip(batch, seen.candidates, strict=True):
            if candidate.settled:
                _tell(study, trial, candidate, _curve(candidate, search, metric, store), metric)
        if not all(candidate.settled for candidate in seen.candidates):
            behind: dict[tuple[Any, ...], tuple[Candidate, str]] = {}
            for trial, candidate in zip(batch, seen.candidates, strict=True):
                curve = [] if candidate.settled else _curve(candidate, search, metric, store)
                if curve and metric is not None and _is_behind(trial, curve, metric):
                    told = f"dev {metric.name} {curve[-1]:.4g} after {len(curve)} evaluations, {search.pruner} pruner"
                    behind[tuple(candidate.params.items())] = candidate, told
            selection = Selection(sweep, tuple(found.values()), metric, wanted - asked)
            return Replayed(selection, tuple(behind.values()))
    return Replayed(Selection(sweep, tuple(found.values()), metric))


def _study(search: Search) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise InputError(
            f"sampler={search.sampler}, pruner={search.pruner}: they need Optuna: pip install 'dropbench[sweep]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # The liar keeps those of a batch apart, which know nothing of each other.
    tpe = search.sampler == "tpe"
    samplers, pruners = optuna.samplers, optuna.pruners
    return optuna.create_study(
        study_name="sweep",  # Hyperband draws from it
        direction="maximize",
        sampler=samplers.TPESampler(seed=search.seed, constant_liar=True)
        if tpe
        else samplers.RandomSampler(seed=search.seed),
        pruner={"none": pruners.NopPruner, "median": pruners.MedianPruner, "hyperband": pruners.HyperbandPruner}[
            search.pruner
        ](),
    )


def _distribution(values: tuple[Scalar, ...] | Range, search: Search) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(values, Range):
        return CategoricalDistribution(values)
    every = values.values()
    if search.sampler == "grid":
        return CategoricalDistribution(every or ())
    high = every[-1] if every else values.high
    if values.whole:
        return IntDistribution(int(values.low), int(high), log=values.log, step=int(values.step or 1))
    return FloatDistribution(values.low, high, log=values.log, step=values.step)


def _shown(value: Scalar, values: tuple[Scalar, ...] | Range) -> Scalar:
    """A sampled number as short as tables show it, so that what is shown is what was run."""
    if not isinstance(values, Range) or not isinstance(value, float):
        return value
    return min(max(float(f"{value:.{10 if values.step else DIGITS}g}"), values.low), values.high)


def _tell(
    study: optuna.Study, trial: optuna.Trial, candidate: Candidate, curve: list[float], metric: Metric | None
) -> None:
    from optuna.trial import TrialState

    if candidate.state == "succeeded" and metric is not None and candidate.dev is not None:
        _report(trial, curve, metric)
        study.tell(trial, _signed(candidate.dev, metric))
    elif candidate.state == "pruned" and metric is not None:
        _report(trial, curve, metric)
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, state=TrialState.FAIL)


def _is_behind(trial: optuna.Trial, curve: list[float], metric: Metric) -> bool:
    _report(trial, curve, metric)
    return trial.should_prune()


def _report(trial: optuna.Trial, curve: list[float], metric: Metric) -> None:
    for number, value in enumerate(curve, 1):
        trial.report(_signed(value, metric), number)


def _signed(value: float, metric: Metric) -> float:
    """More is better, whatever the metric: which one it is, is known no sooner than it was measured."""
    return value if metric.higher_is_better else -value


def _curve(candidate: Candidate, search: Search, metric: Metric | None, store: Store) -> list[float]:
    """The dev scores of a candidate, evaluation by evaluation: the means over the seeds that are as far."""
    if search.pruner == "none" or metric is None:
        return []
    query = select(Metrics.c.trial_id, Metrics.c.value).where(
        Metrics.c.step != FINAL, Metrics.c.name == f"dev/{metric.name}"
    )
    points: dict[str, list[float | None]] = {}
    with reading(store.engine) as connection:
        ids = among(connection, Metrics.c.trial_id, [trial.id for trial in candidate.trials])
        for id, value in connection.execute(query.where(ids).order_by(Metrics.c.trial_id, Metrics.c.step)):
            points.setdefault(id, []).append(value)
    means = (summarize(values).mean for values in zip_longest(*points.values()))
    return [mean for mean in takewhile(lambda mean: mean is not None, means) if mean is not None]
