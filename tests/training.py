"""Make trials, and train them in this process: in one go, or stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.errors import Interrupted
from dropbench.harness.regularizers.spec import parse_spec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest


def make_trial(
    regularizer: str = "none", *, task: str = "image-classification", data: str = "digits", model: str = "vit-digits",
    align: str = "none", seed: int = 3, folders: dict[str, Path] | None = None, **overrides: Any,
) -> Trial:  # fmt: skip
    """Make a trial with a regularizer as on the command line, and check it as before it is queued."""
    spec, kind = parse_spec(regularizer), TASKS.get(task)
    request = TrialRequest(
        task=task, data=data, model=model, regularizer=spec.name, params=spec.params, align=align,
        overrides=overrides, seed=seed,
    )  # fmt: skip
    trial = kind.trial_for(request, Settings(folders=folders or {}))
    kind.check(trial)
    return trial


def run(runs: Path, trial: Trial, stop: Callable[[], bool] = lambda: False, **settings: Any) -> dict[str, Any]:
    """Train a trial on one thread of the CPU, or go on with it; return its result."""
    own: dict[str, Any] = {"runs": runs, "device": "cpu", "threads": 1, **settings}
    return run_trial(RunDirectory.create(runs, trial), Settings(**own), stop)


def after(looks: int) -> Callable[[], bool]:
    """Return a stop that says yes at a look: one comes before each step, and one after each evaluated batch."""
    count = iter(range(10**9))
    return lambda: next(count) >= looks


def once(runs: Path, trial: Trial, kind: str, step: int = 0) -> Callable[[], bool]:
    """Return a stop that says yes once a trial has an event of a kind at a step or later."""
    directory = RunDirectory(runs / trial.id)
    return lambda: any(event["event"] == kind and event["step"] >= step for event in directory.events())


def curve(runs: Path, trial: Trial) -> list[dict[str, Any]]:
    """Return the events of training and evaluation, without their times."""
    events = RunDirectory(runs / trial.id).events()
    kinds = ("train", "evaluate", "phase")
    return [{k: v for k, v in event.items() if k != "time"} for event in events if event["event"] in kinds]


def assert_resumes(folder: Path, trial: Trial, stops: Sequence[int] = (2,), **settings: Any) -> dict[str, Any]:
    """Assert that a trial that stops at these calls ends bit for bit like one that does not; return its result."""
    whole = run(folder / "whole", trial, **settings)
    for calls in stops:
        with pytest.raises(Interrupted):
            run(folder / "parts", trial, after(calls), **settings)
    assert run(folder / "parts", trial, **settings) == whole
    assert curve(folder / "parts", trial) == curve(folder / "whole", trial)
    return whole
