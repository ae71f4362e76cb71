"""Uncertainty over examples: of one configuration, and of the difference between two on the same examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import stdev

import numpy as np

from dropbench.db.statistics.paired_examples import mcnemar, paired_bootstrap
from dropbench.harness.errors import InputError
from dropbench.jobs.predictions.scores import ExampleScores, Floats
from dropbench.jobs.predictions.sides import Side

DRAWS = 2000
"""Resamples of the examples."""


@dataclass(frozen=True, kw_only=True)
class MetricTest:
    """A metric of one side or two. Values are means over seeds.

    Attributes:
        metric: name without the split.
        a, b: values; `b` is None for one side.
        change: b minus a; None for one side.
        low, high: 95 % interval over examples, of `change` or else of `a`.
        p: p-value of `change` over examples, by the paired bootstrap; None for one side.
        mcnemar: p-value of McNemar's test; None unless two trials have a share of correct examples.
        only_a, only_b: examples that only the one trial has correct; None without McNemar's test.
        seed_std: standard deviation over seeds, of `change` or else of `a`; None with one seed.
        seeds, n: number of seeds, and of examples.
    """

    metric: str
    a: float
    b: float | None = None
    change: float | None = None
    low: float
    high: float
    p: float | None = None
    mcnemar: float | None = None
    only_a: int | None = None
    only_b: int | None = None
    seed_std: float | None
    seeds: int
    n: int


def align(a: Side, b: Side) -> tuple[Side, Side]:
    """Return both sides with the examples and the seeds that both have; two single trials may differ in their seed.

    Raises:
        InputError: they have no example or no seed in common, or are of different tasks.
    """
    if a.first.header.task != b.first.header.task:
        raise InputError(f"tasks {a.first.header.task} and {b.first.header.task}: expected trials of one task")
    known = set(b.ids)
    ids = [id for id in a.ids if id in known]
    if not ids:
        names = [side.first.header.data for side in (a, b)]
        raise InputError(f"no example in common: data {names[0]} and {names[1]}: expected trials on the same examples")
    if len(a.by_seed) == len(b.by_seed) == 1:
        return a.take(ids, list(a.by_seed)), b.take(ids, list(b.by_seed))
    seeds = [seed for seed in a.by_seed if seed in b.by_seed]
    if not seeds:
        raise InputError("no seed in common: expected trials with the same seeds on both sides")
    return a.take(ids, seeds), b.take(ids, seeds)


def describe_side(side: Side) -> list[MetricTest]:
    """Return every metric with its interval over the examples."""
    rows = []
    for name, scores in side.scores().items():
        counts, statistic, values = _stack(scores)
        zero = float(statistic(np.zeros((1, 1, *counts.shape[1:])), axis=1)[0])
        # Compared with a method whose counts are all 0, whose metric does not vary.
        interval = paired_bootstrap(counts, np.zeros(counts.shape), statistic, DRAWS)
        low, high = interval.low + zero, interval.high + zero
        sizes = {"seeds": len(values), "n": len(counts)}
        rows.append(MetricTest(metric=name, a=_mean(values), low=low, high=high, seed_std=_std(values), **sizes))
    return rows


def compare_sides(a: Side, b: Side) -> list[MetricTest]:
    """Return every metric that is defined in the same way on both sides (aligned), with tests of its change."""
    rows = []
    scores_a, scores_b = a.scores(), b.scores()
    definitions = [{**side.first.header.metrics, **side.first.header.corpus} for side in (a, b)]
    for name in scores_a:
        if name not in scores_b or definitions[0][name] != definitions[1][name]:
            continue
        counts_a, statistic, values_a = _stack(scores_a[name])
        counts_b, _, values_b = _stack(scores_b[name])
        test = paired_bootstrap(counts_b, counts_a, statistic, DRAWS)
        correct_a, correct_b = scores_a[name][0].correct, scores_b[name][0].correct
        exact = None
        if len(values_a) == 1 and correct_a is not None and correct_b is not None:
            exact = mcnemar(correct_a, correct_b)
        rows.append(
            MetricTest(
                metric=name,
                a=_mean(values_a),
                b=_mean(values_b),
                change=_mean(values_b) - _mean(values_a),
                low=test.low,
                high=test.high,
                p=test.p,
                mcnemar=exact.p if exact else None,
                only_a=exact.only_a if exact else None,
                only_b=exact.only_b if exact else None,
                seed_std=_std([second - first for first, second in zip(values_a, values_b, strict=True)]),
                seeds=len(values_a),
                n=len(counts_a),
            )
        )
    return rows


def _stack(scores: list[ExampleScores]) -> tuple[Floats, Callable[..., Floats], list[float]]:
    """Return the counts of all seeds (n, seeds, k), the mean of a metric over seeds as a statistic, and its values."""
    value = scores[0].value

    def statistic(counts: Floats, axis: int) -> Floats:
        means: Floats = value(counts.sum(axis=axis)).mean(axis=-1)
        return means

    counts = np.stack([seed.counts for seed in scores], axis=1)
    return counts, statistic, value(counts.sum(axis=0)).tolist()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _std(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
