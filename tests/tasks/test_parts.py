"""A step over the parts of a batch, as after running out of memory or on several ranks, has the batch's gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from tests.harness.training.step_gradient import TRIALS, plain_trial, step_gradient


@pytest.mark.parametrize("task", TRIALS)
def test_parts_have_the_gradient_of_the_whole(tmp_path: Path, task: str) -> None:
    directory = RunDirectory.create(tmp_path, plain_trial(task))
    whole = step_gradient(directory)
    assert whole.norm() > 0
    for splits in (2, 3, 4):
        difference = float((step_gradient(directory, splits) - whole).norm() / whole.norm())
        assert difference < 1e-5, splits
