"""Keep rates: the share of real weights that the regularizer's own draws keep."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dropbench.harness.analysis import ANALYSES
from dropbench.harness.analysis.keep_rate import kept_weights
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.harness.settings import Settings
from tests.harness.analysis.trained_runs import make_run, make_trial, train_small
from tests.harness.given import drop_site, given_drop, site_with

CPU = Settings(device="cpu", threads=1)


def test_the_weights_kept_by_a_given_draw_are_exact() -> None:
    weights = torch.rand(2, 3, 4, 4, dtype=torch.float64) + 0.1
    weights[1, ..., 3] = 0.0  # padding
    weights[0, 0, 1, 2] = 1e-300  # kept, however small
    weights = weights / weights.sum(-1, keepdim=True)
    dropped = torch.rand(2, 3, 4, 4) < 0.5
    dropped[0, 1, 2] = True  # dropping all keys: the row keeps them
    kept, real = kept_weights(site_with(given_drop(dropped, "renormalize")), weights)
    expected = ~dropped
    expected[0, 1, 2] = True
    empty = (~dropped & (weights != 0)).any(-1, keepdim=True)
    expected = (expected | ~empty) & real
    assert torch.equal(kept, expected)
    assert real[0].all()
    assert not real[1, :, 3].any()  # not as a query
    assert not real[1, ..., 3].any()  # nor as a key
    inverse, _ = kept_weights(site_with(given_drop(dropped, "inverse")), weights)
    assert torch.equal(inverse, ~dropped & real)


def test_a_trials_layers_follow_its_schedule(tmp_path: Path) -> None:
    trained = train_small(tmp_path, schedule="decreasing", params={"ratio": 0.4})
    findings = ANALYSES.get("keep-rate")(trained, Options())
    assert findings.scalars["encoder-self.1"] == pytest.approx(0.6, abs=0.01)
    assert findings.scalars["encoder-self.2"] == 1.0
    assert findings.scalars["nominal"] == pytest.approx(0.8)
    assert findings.arrays["nominal"].tolist() == pytest.approx([0.6, 1.0])
    assert findings.arrays["sites"].tolist() == ["encoder-self.1", "encoder-self.2"]


def test_regularizer_none_keeps_every_weight(tmp_path: Path) -> None:
    trained = train_small(tmp_path, regularizer="none")
    assert ANALYSES.get("keep-rate")(trained, Options(samples=20)).scalars["kept"] == 1.0


def test_learned_masks_report_their_own_statistics(tmp_path: Path) -> None:
    trial = make_trial(regularizer="learned-dropout", params={"where": "attention", "shift_init": 1.2})
    findings = ANALYSES.get("keep-rate")(Trained(make_run(tmp_path, trial), CPU), Options(samples=20))
    assert set(findings.scalars) >= {"kept", "entropy", "l1_norm", "near_one", "near_zero", "blocks.0.attn"}
    # 0.5 cos(1.2) + 0.5 = 0.68, with small deviations: the threshold keeps nearly all, few values are near 0 or 1.
    assert findings.scalars["kept"] > 0.9
    assert findings.scalars["near_one"] + findings.scalars["near_zero"] < 0.1
    assert findings.arrays["mask.entropy"].shape == (2,)


def test_draws_are_those_of_the_regularizer() -> None:
    site = drop_site("block", ratio=0.4, window=2, grid=(4, 4), prefix=1)
    weights = torch.full((50, 2, 17, 17), 1 / 17)
    torch.manual_seed(1)
    kept, _ = kept_weights(site, weights)
    torch.manual_seed(1)
    assert isinstance(site.regularizer, UnitDrop)
    assert torch.equal(kept, ~site.regularizer.sample_drop_mask((50, 2, 17, 17), site, torch.device("cpu")))
