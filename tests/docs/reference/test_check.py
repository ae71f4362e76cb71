"""Which trials `python -m docs.reference check` runs again, and what it says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from docs.reference.check import all_equal, of_this_machine, rerun
from dropbench.db.reference.load import open_reference
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.training.environment import environment
from tests.docs.reference.given import campaign, extended


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trials of another machine, and one of this machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    [trial] = campaign(tmp_path / "runs", ["none"], seeds=(0,))
    here = environment(torch.device("cpu")) | {"threads": 1}
    Runs(tmp_path / "runs")[trial.id].write("environment.json", here)
    campaign(tmp_path / "runs", ["dropkey"])
    extended(tmp_path / "x.zip", tmp_path / "runs")
    return tmp_path / "x.zip"


def test_another_processor_explains_differences(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs.reference.check.run_trial", lambda directory, settings: {"metrics": {"train/loss": 0.25}})
    monkeypatch.setattr("dropbench.harness.training.environment.processor", lambda: "another processor")
    with open_reference(str(file)) as reference:
        assert of_this_machine(reference, Settings(device="cpu")) == []
        outcomes = list(rerun(reference, 10, 0, Settings(device="cpu")))
    assert len(outcomes) > 1
    assert [list(outcome.machine) for outcome in outcomes].count(["device"]) == 1
    assert all(outcome.differences and not outcome.failed for outcome in outcomes)


def test_trials_of_this_kind_of_machine_are_run_again_and_others_left_out(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = {"test/accuracy": 90.0, "dev/accuracy": 91.0, "train/loss": 0.25}
    monkeypatch.setattr("docs.reference.check.run_trial", lambda directory, settings: {"metrics": metrics})
    settings = Settings(device="cpu")
    with open_reference(str(file)) as reference:
        [id] = of_this_machine(reference, settings)
        [outcome] = rerun(reference, 10, 0, settings)
    assert outcome.trial.id == id
    assert outcome.trial.regularizer.name == "none"
    assert outcome.differences == {"train/loss": (0.5, 0.25)}
    assert "train/loss: 0.5 in the reference, 0.25 here (-0.25)" in str(outcome)
    assert all_equal([outcome]) == "0 of 1 trials gave the same numbers"


def test_a_trial_of_an_earlier_version_is_run_as_one_of_the_current_version(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = []

    def run(directory: RunDirectory, settings: Settings) -> dict[str, Any]:
        versions.append(directory.trial().result_versions)
        return {"metrics": {"train/loss": 0.25}}

    monkeypatch.setattr("docs.reference.check.run_trial", run)
    monkeypatch.setattr("dropbench.harness.trials.result_versions.ENGINE", 2)
    with open_reference(str(file)) as reference:
        [outcome] = rerun(reference, 10, 0, Settings(device="cpu"))
    assert versions == [{"engine": 2}]
    assert not outcome.failed
    assert "result versions: {} in the reference, {'engine': 2} here" in str(outcome)
