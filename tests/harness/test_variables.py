"""Variables of the environment do not change what a trial computes; those that may change its digits are recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dropbench.harness.files import read_json
from dropbench.harness.variables import RECIPE, without_variables
from tests.training import curve, make_trial, run

TRAINING = {
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
    "ACCELERATE_USE_FSDP": "true",
}


@pytest.mark.parametrize("name", TRAINING)
def test_what_a_library_would_obey_changes_no_number(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(steps=8, evaluate_every=8, accumulate=2)
    expected = run(tmp_path / "without", trial)
    monkeypatch.setenv(name, TRAINING[name])
    assert run(tmp_path / "with", trial) == expected
    assert curve(tmp_path / "with", trial) == curve(tmp_path / "without", trial)
    assert os.environ[name] == TRAINING[name]


def test_other_variables_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("HF_TOKEN", "secret")
    trial = make_trial(steps=1)
    run(tmp_path, trial)
    variables = read_json(tmp_path / trial.id / "environment.json")["variables"]
    assert variables["MKL_CBWR"] == "COMPATIBLE"
    assert "secret" not in variables.values()


def test_variables_are_put_back_and_those_set_meanwhile_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_A", "1")
    monkeypatch.delenv("ACCELERATE_B", raising=False)
    with without_variables(*RECIPE):
        assert "ACCELERATE_A" not in os.environ
        os.environ["ACCELERATE_B"] = "2"
    assert (os.environ["ACCELERATE_A"], os.environ.get("ACCELERATE_B")) == ("1", None)
