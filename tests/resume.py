"""A check that a trial that is stopped and resumed ends bit for bit like one that is not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.errors import Interrupted
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.engine import run_trial
from harness.trials.trial import Trial


def check_resume(folder: Path, trial: Trial, *stops: int) -> dict[str, Any]:
    """Run a trial whole, and once more with a stop after each of these numbers of steps; return the result of both."""
    settings = Settings.from_environment(device="cpu", threads=1)
    whole = run_trial(RunDirectory.create(folder / "whole", trial), settings)
    directory = RunDirectory.create(folder / "parts", trial)
    for stop in stops:
        with pytest.raises(Interrupted):
            run_trial(directory, settings, partial(next, iter([False] * (stop - 1) + [True])))
    assert run_trial(directory, settings) == whole
    return whole
