"""Seeds of the sources of randomness in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness.training.test_engine import make
from tests.training import run


def test_each_source_of_randomness_can_have_a_fixed_seed(tmp_path: Path) -> None:
    short: dict[str, Any] = {"epochs": 1, "evaluate_every": 30}
    whole = run(tmp_path, make(**short))["metrics"]
    fixed: dict[str, Any] = {f"seed_{source}": 3 for source in ("init", "order", "masks")}
    assert not fixed.keys() & make(**short).recipe.keys(), "trials without these keys keep their ids"
    assert run(tmp_path, make(seed=4, **short, **fixed))["metrics"] == whole
    for varied in fixed:
        others: dict[str, Any] = {key: value for key, value in fixed.items() if key != varied}
        assert run(tmp_path, make(seed=4, **short, **others))["metrics"] != whole, varied
