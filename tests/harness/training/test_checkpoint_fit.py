"""Checkpoints that can be read, but do not fit their trial."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError, Interrupted
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.training import checkpoint
from dropbench.harness.trials.trial import Trial
from tests.damage import damage
from tests.harness.training.test_engine import make
from tests.training import after, run

State = dict[str, Any]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trial]:
    """A run with checkpoints at steps 10 and 12, which selected the weights of step 9."""
    runs, trial = tmp_path_factory.mktemp("stopped"), make(average_last=2)
    for calls in (15, 2):  # the evaluation after step 9 takes five looks
        with pytest.raises(Interrupted):
            run(runs, trial, after(calls))
    return runs, trial


def put(*keys: Any, value: Any) -> Callable[[State], None]:
    """Replace an entry; keys are those of nested dictionaries and lists."""

    def change(state: State) -> None:
        for key in keys[:-1]:
            state = state[key]
        state[keys[-1]] = value

    return change


def without(*keys: Any) -> Callable[[State], None]:
    def change(state: State) -> None:
        for key in keys[:-1]:
            state = state[key]
        del state[keys[-1]]

    return change


def another_optimizer(state: State) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(len(state["optimizer"]["state"]))]
    state["optimizer"] = torch.optim.SGD(parameters, lr=0.1).state_dict()


def moments_of_another_optimizer(state: State) -> None:
    for moments in state["optimizer"]["state"].values():
        moments["momentum_buffer"] = moments.pop("exp_avg")


def moments_of_an_unknown_parameter(state: State) -> None:
    state["optimizer"]["state"]["6"] = state["optimizer"]["state"].pop(6)


def nan(state: State) -> None:
    state["model"]["head.weight"][0, 0] = torch.nan


def nan_moments(state: State) -> None:
    state["optimizer"]["state"][0]["exp_avg"].fill_(torch.nan)


MISFITS: dict[str, Callable[[State], None]] = {
    "no model": without("model"),
    "a parameter is missing": without("model", "head.weight"),
    "a parameter too many": put("model", "head.scale", value=torch.zeros(1)),
    "another shape": put("model", "head.weight", value=torch.zeros(3, 3)),
    "not a tensor": put("model", "head.weight", value="text"),
    "NaN": nan,
    "average without a parameter": without("average", "module.head.weight"),
    "another optimizer": another_optimizer,
    "moments of another optimizer": moments_of_another_optimizer,
    "moments of an unknown parameter": moments_of_an_unknown_parameter,
    "moments of another shape": put("optimizer", "state", 0, "exp_avg", value=torch.zeros(7)),
    "groups without a default": without("optimizer", "param_groups", 0, "betas"),
    "groups without a rate": without("optimizer", "param_groups", 0, "lr"),
    "groups without a share": without("optimizer", "param_groups", 1, "share"),
    "a share that is null": put("optimizer", "param_groups", 1, "share", value=None),
    "settings that the device lacks": put("optimizer", "param_groups", 0, "capturable", value=True),
    "a rate that is text": put("optimizer", "param_groups", 0, "lr", value="high"),
    "moments that are NaN": nan_moments,
    "no progress": without("progress"),
    "progress that is a list": put("progress", value=[]),
    "a step that is text": put("progress", "step", value="12"),
    "a step of another file": put("progress", "step", value=7),
    "a step past the end": put("progress", "step", value=10**9),
    "an unknown phase": put("progress", "phase", value="rest"),
    "averaged steps that are text": put("progress", "averaged", value=["9"]),
    "selected weights that are missing": put("selected", value=5),
    "no loss": put("loss_sum", value=torch.tensor(torch.nan)),
    "saved weights of another form": put("saved_weights", value=[3]),
}


def resumed(runs: Path, trial: Trial) -> tuple[int, list[str]]:
    """Resume a run for a step, and return where it began, and the reported problems."""
    with pytest.raises(Interrupted):
        run(runs, trial, after(1))
    events = RunDirectory(runs / trial.id).events()
    problems = [event["message"] for event in events if event["event"] == "damaged"]
    return [event["step"] for event in events if event["event"] == "resume"][-1], problems


FAST = ("a parameter is missing", "NaN", "another optimizer", "moments of another shape", "a step that is text")


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in FAST else pytest.mark.slow) for what in MISFITS]
)
def test_a_checkpoint_that_does_not_fit_falls_back_to_the_one_before(
    tmp_path: Path, stopped: tuple[Path, Trial], what: str
) -> None:
    runs, trial = shutil.copytree(stopped[0], tmp_path / "runs"), stopped[1]
    newest = runs / trial.id / "checkpoint" / "step-000000012.pt"
    state = torch.load(newest, weights_only=True)
    MISFITS[what](state)
    torch.save(state, newest)
    step, problems = resumed(runs, trial)
    assert step == 10
    assert len(problems) == 1
    assert problems[0].startswith("step-000000012.pt: ")
    assert "\n" not in problems[0]


@pytest.mark.parametrize("kind", ["folder", "loop", "pipe", "list"])
def test_only_regular_files_are_opened(tmp_path: Path, stopped: tuple[Path, Trial], kind: str) -> None:
    runs, trial = shutil.copytree(stopped[0], tmp_path / "runs"), stopped[1]
    damage(runs / trial.id / "checkpoint" / "step-000000012.pt", kind)
    step, problems = resumed(runs, trial)
    assert (step, len(problems)) == (10, 1)
    directory = RunDirectory(runs / trial.id)
    damage(directory.path / "checkpoint" / "step-000000001.pt", kind)
    assert resumed(runs, trial)[0] == 11


@pytest.mark.parametrize("what", ["keys", "shape", "NaN"])
def test_selected_weights_that_do_not_fit(tmp_path: Path, stopped: tuple[Path, Trial], what: str) -> None:
    runs, trial = shutil.copytree(stopped[0], tmp_path / "runs"), stopped[1]
    file = checkpoint.weights_path(runs / trial.id / "checkpoint", 9)
    content = torch.load(file, weights_only=True)
    weights = content[checkpoint.WEIGHTS]
    weights["head.weight"] = torch.full_like(weights["head.weight"], torch.nan) if what == "NaN" else torch.zeros(1)
    if what == "keys":
        del weights["head.weight"]
    torch.save(content, file)
    with pytest.raises(InputError, match="no checkpoint fits: use the libraries"):
        run(runs, trial)
    assert len(list(file.parent.glob("step-*.pt"))) == 2, "they may fit another version"


def test_checkpoints_of_another_trial_are_not_resumed(tmp_path: Path, stopped: tuple[Path, Trial]) -> None:
    runs, trial = shutil.copytree(stopped[0], tmp_path / "runs"), stopped[1]
    other = trial.model_copy(update={"seed": trial.seed + 1})
    directory = RunDirectory.create(runs, other)
    shutil.copytree(runs / trial.id / "checkpoint", directory.path / "checkpoint")
    step, problems = resumed(runs, other)
    assert step == 0
    assert len(problems) == 2
    assert all(f"is of trial '{trial.id}'" in problem for problem in problems)


def test_selected_weights_of_another_trial_are_not_used(tmp_path: Path, stopped: tuple[Path, Trial]) -> None:
    runs, trial = shutil.copytree(stopped[0], tmp_path / "runs"), stopped[1]
    folder = shutil.copytree(runs / trial.id / "checkpoint", runs / ("0" * 12) / "checkpoint")
    with pytest.raises(checkpoint.Damaged, match=f"is of trial '{trial.id}'"):
        checkpoint.load_weights(folder, 9)
