"""The Bayesian signed-rank test, compared with baycomp."""

from __future__ import annotations

import numpy as np
import pytest

from db.statistics import bayesian
from db.statistics.bayesian import bayesian_signed_rank

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("blocks", "zone"), [(5, 0.2), (10, 0.5), (14, 1.0)])
def test_as_baycomp(blocks: int, zone: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both draw the same weights from the same generator."""
    baycomp = pytest.importorskip("baycomp")
    baseline, ours = RNG.normal(0, 1, blocks).round(1), RNG.normal(0.5, 1, blocks).round(1)
    monkeypatch.setattr(bayesian, "MAX_BATCH", 1000)
    posterior = bayesian_signed_rank(ours - baseline, zone, draws=2000, seed=3)
    theirs = baycomp.SignedRankTest.probs(baseline, ours, rope=zone, nsamples=2000, random_state=3)
    assert [posterior.worse, posterior.equivalent, posterior.better] == pytest.approx(theirs, abs=1e-9)


def test_clear_cases() -> None:
    assert bayesian_signed_rank([5.0] * 10, 1.0).better > 0.99
    assert bayesian_signed_rank([-5.0] * 10, 1.0).worse > 0.99
    assert bayesian_signed_rank([0.1, -0.1] * 5, 1.0).equivalent > 0.99
