"""The Bayesian signed-rank test, compared with baycomp."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dropbench.db.statistics import bayesian
from dropbench.db.statistics.bayesian import bayesian_signed_rank
from tests.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "rank_statistics.json").read_text())["baycomp"]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{len(golden['first'])} blocks")
def test_as_baycomp(golden: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both draw the same weights from the same generator, ours in batches."""
    monkeypatch.setattr(bayesian, "MAX_BATCH", 1000)
    differences = np.subtract(golden["second"], golden["first"])
    posterior = bayesian_signed_rank(differences, golden["zone"], draws=2000, seed=3)
    ours = [posterior.worse, posterior.equivalent, posterior.better]
    assert ours == pytest.approx(golden["probabilities"], abs=1e-9)


def test_clear_cases() -> None:
    assert bayesian_signed_rank([5.0] * 10, 1.0).better > 0.99
    assert bayesian_signed_rank([-5.0] * 10, 1.0).worse > 0.99
    assert bayesian_signed_rank([0.1, -0.1] * 5, 1.0).equivalent > 0.99
