"""The Bayesian signed-rank test with a zone of practical equivalence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

PRIOR = 0.5
"""Weight of the prior's pseudo-observation, a difference of 0; that of an observation is 1."""
DRAWS = 10_000
MIN_DRAWS, MAX_PRODUCTS = 1000, 2 * 10**9
"""More than `MAX_PRODUCTS` / n² draws take seconds; many differences need fewer."""
MAX_BATCH = 2**20


@dataclass(frozen=True)
class Posterior:
    """Probabilities that a difference is below, within or above the zone of practical equivalence; their sum is 1."""

    worse: float
    equivalent: float
    better: float


def bayesian_signed_rank(differences: ArrayLike, zone: float, draws: int | None = None, seed: int = 0) -> Posterior:
    """Return the probability that a method is worse, practically equivalent, or better (Benavoli et al. 2017).

    The posterior is a Dirichlet process: each draw weights the differences, and the mean of two differences that it
    picks is most probably in one of the three regions. The probabilities are the shares of the draws of each region.

    Args:
        differences: one per block, (n,), positive if the method is better.
        zone: half the width of the zone around 0, > 0, in units of the differences.
        draws: draws from the posterior; default: `DRAWS`, fewer for many differences.
        seed: seed of the generator.
    """
    with_prior = np.append(0.0, np.asarray(differences, dtype=float))
    sums = with_prior[:, None] + with_prior
    above, below = (np.heaviside(sign * sums - 2 * zone, 0.5) for sign in (1, -1))
    weights = np.ones(len(with_prior))
    weights[0] = PRIOR
    if draws is None:
        draws = min(DRAWS, max(MIN_DRAWS, MAX_PRODUCTS // len(weights) ** 2))
    generator = np.random.RandomState(seed)
    counts = np.zeros(3)
    batch = max(1, MAX_BATCH // len(weights))
    for start in range(0, draws, batch):
        drawn = generator.dirichlet(weights, min(batch, draws - start))
        shares = np.empty((len(drawn), 3))
        shares[:, 0], shares[:, 2] = (((drawn @ region) * drawn).sum(1) for region in (below, above))
        shares[:, 1] = 1 - shares[:, 0] - shares[:, 2]
        counts += np.bincount(shares.argmax(1), minlength=3)
    worse, equivalent, better = (counts / draws).tolist()
    return Posterior(worse, equivalent, better)
