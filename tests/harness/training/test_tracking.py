"""Trackers get what the events say, change nothing in the result, and cannot stop a trial."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.cli.main import run as command
from dropbench.harness.errors import InputError, Interrupted
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.training.tracking import checked_trackers
from dropbench.harness.trials.trial import Trial
from tests.training import after, make_trial, run


@pytest.fixture(scope="module")
def trial() -> Trial:
    small: dict[str, Any] = {"model.depth": 1, "model.embed_dim": 16}
    return make_trial("dropkey:ratio=0.3", epochs=1, batch_size=96, evaluate_every=4, **small)


def logged_scalars(runs: Path, trial: Trial) -> dict[str, dict[int, float]]:
    """Return the values of the events by the names that trackers use."""
    values: dict[str, dict[int, float]] = {}
    for event in RunDirectory(runs / trial.id).events():
        named = {}
        if event["event"] == "train":
            named = {"train/loss": event["loss"], "train/lr": event["lr"]}
        elif event["event"] == "evaluate":
            named = {f"dev/{name}": value for name, value in event["metrics"].items()}
        elif event["event"] == "end":
            named = {f"final/{name}": value for name, value in event["metrics"].items()}
        for name, value in named.items():
            values.setdefault(name, {})[event["step"]] = value
    return values


def test_tensorboard_has_what_the_events_say_after_a_stop_too(tmp_path: Path, trial: Trial) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    plain = run(tmp_path / "plain", trial)
    with pytest.raises(Interrupted):
        run(tmp_path, trial, after(6), trackers=("tensorboard",))
    assert run(tmp_path, trial, trackers=("tensorboard",)) == plain
    found = EventAccumulator(str(tmp_path / trial.id / "dropbench"), {"scalars": 0}).Reload()
    expected = logged_scalars(tmp_path, trial)
    assert set(found.Tags()["scalars"]) == set(expected)
    for name, values in expected.items():
        points = {point.step: point.value for point in found.Scalars(name)}
        assert points == pytest.approx(values, rel=1e-6), name
    (hyper,) = (tmp_path / trial.id / "dropbench").glob("*/hparams.yml")
    assert "regularizer.name: dropkey" in hyper.read_text()


def test_a_tracker_that_fails_does_not_stop_the_trial(
    tmp_path: Path, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    RunDirectory.create(tmp_path, trial)
    (tmp_path / trial.id / "dropbench").write_text("no folder")
    assert run(tmp_path, trial, trackers=("tensorboard",))["format"] == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("tracking disabled: ") for line in lines) == 1


def test_unknown_and_missing_trackers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown tracker 'tensorbord': did you mean tensorboard"):
        checked_trackers(["tensorbord"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="tracker 'wandb' needs the package wandb: `pip install wandb`"):
        checked_trackers(["wandb"])


def test_the_command_line_refuses_a_tracker_it_does_not_know(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROPBENCH_TRACKERS", "tensorbord")
    assert command(["run", "quickstart"]) == 2
    assert "unknown tracker 'tensorbord'" in capsys.readouterr().err
