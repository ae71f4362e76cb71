"""Evidence for or against each method of a complete table, as columns of a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from dropbench.db.statistics.aggregates import performance_profile, probability_of_improvement, stratified_bootstrap
from dropbench.db.statistics.bayesian import bayesian_signed_rank
from dropbench.db.statistics.corrections import SIGNIFICANCE
from dropbench.db.statistics.ranks import critical_difference, groups, letters, nemenyi, wilcoxon_holm

ZONE = 1.0
"""Half the width of the zone of practical equivalence, in percent of the baseline's value (Benavoli et al. 2017)."""
THRESHOLDS = 41
"""Points of a performance profile."""
MAX_PAIRWISE = 30
"""Methods up to which every pair is tested; 30 have 435 pairs."""

Runs = Sequence[Sequence[float]]
"""Improvements over the baseline in percent, of the runs of a method in each block, a higher one is better."""


def against_baseline(runs: Runs, baseline: Runs, means: Sequence[float]) -> dict[str, float | None]:
    """Return the columns of a method; `means` are its improvements in each block, none for the baseline itself."""
    columns: dict[str, float | None] = dict.fromkeys(COLUMNS)
    if not runs:
        return columns
    iqm = stratified_bootstrap(runs)
    columns.update(iqm=iqm.value, iqm_low=iqm.low, iqm_high=iqm.high)
    if means:
        wins = probability_of_improvement(list(zip(runs, baseline, strict=True)))
        columns.update(p_improvement=wins.value, p_improvement_low=wins.low, p_improvement_high=wins.high)
        posterior = bayesian_signed_rank(means, ZONE)
        columns.update(p_worse=posterior.worse, p_equivalent=posterior.equivalent, p_better=posterior.better)
    return columns


COLUMNS = (
    *("iqm", "iqm_low", "iqm_high", "p_improvement", "p_improvement_low", "p_improvement_high"),
    *("p_worse", "p_equivalent", "p_better"),
)
"""Names of the columns: interquartile mean of the improvement, probability of improvement, and Bayesian posterior."""


def profiles(runs: Mapping[str, Runs]) -> dict[str, list[float]]:
    """Return thresholds of the improvement as ``improvement``, and by method the share of its runs above them."""
    values = {method: np.array([*chain.from_iterable(blocks)]) for method, blocks in runs.items()}
    thresholds = np.linspace(min(map(np.min, values.values())), max(map(np.max, values.values())), THRESHOLDS)
    shares = {method: performance_profile(array, thresholds).tolist() for method, array in values.items()}
    return {"improvement": thresholds.tolist(), **shares}


@dataclass(frozen=True)
class PostHoc:
    """Which methods differ.

    Attributes:
        difference: Nemenyi's critical difference of mean ranks.
        letters: of the groups of each method; methods that share one do not differ by Nemenyi's test.
        pairs: labels of two methods, p_nemenyi, and p_wilcoxon_holm; none for more than `MAX_PAIRWISE` methods.
    """

    difference: float
    letters: list[str]
    pairs: list[dict[str, Any]]


def post_hoc(
    scores: Sequence[Sequence[float]], mean_ranks: Sequence[float], p_friedman: float, labels: Sequence[str]
) -> PostHoc:
    """Test which methods differ; if Friedman's test finds no difference, all are one group.

    Args:
        scores: of each block, that of each method, a higher one is better.
        mean_ranks: of each method.
        p_friedman: p-value of Friedman's test.
        labels: of the methods.
    """
    methods = len(mean_ranks)
    difference = critical_difference(methods, len(scores))
    members = groups(mean_ranks, difference) if p_friedman < SIGNIFICANCE else [list(range(methods))]
    pairs: list[dict[str, Any]] = []
    if methods <= MAX_PAIRWISE:
        by_ranks, by_values = nemenyi(mean_ranks, len(scores)), wilcoxon_holm(scores)
        for pair in combinations(range(methods), 2):
            p_values = {"p_nemenyi": float(by_ranks[pair]), "p_wilcoxon_holm": float(by_values[pair])}
            pairs.append({"first": labels[pair[0]], "second": labels[pair[1]], **p_values})
    return PostHoc(difference, letters(members, methods), pairs)
