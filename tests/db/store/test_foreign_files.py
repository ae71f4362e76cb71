"""Files of a run directory that are another trial's, changed or lost are damaged, and named wherever they count."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from dropbench.db.transfer.rebuild import rebuild_database
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.request import request_files, write_request
from dropbench.harness.training import checkpoint
from tests.db.records import attempt, make_directory, make_trial
from tests.requests import named

if TYPE_CHECKING:
    from tests.db.conftest import Call

VICTIM, OTHER = make_trial(0), make_trial(1)


@pytest.fixture
def runs(folder: Path) -> Path:
    runs = Path("runs")  # as the default of the settings
    for trial in (VICTIM, OTHER):
        directory = make_directory(
            runs, trial, attempts=[attempt("lost"), attempt("succeeded")], metrics={"test/accuracy": 80.0 + trial.seed},
            losses=[2.5, 1.5],
        )  # fmt: skip
        directory.write("environment.json", {"python": "3.12.1", "libraries": {"torch": "2.13.0"}})
    write_request(runs, named("mine", VICTIM, OTHER))
    rebuild_database("sqlite:///dropbench.db", runs)
    return runs


def replaced(name: str, old: bytes, new: bytes) -> Callable[[RunDirectory, RunDirectory], None]:
    def change(victim: RunDirectory, other: RunDirectory) -> None:
        content = (victim.path / name).read_bytes()
        assert content.count(old) == 1
        (victim.path / name).write_bytes(content.replace(old, new))

    return change


def foreign(name: str) -> Callable[[RunDirectory, RunDirectory], None]:
    def copy(victim: RunDirectory, other: RunDirectory) -> None:
        shutil.copy(other.path / name, victim.path / name)

    return copy


def lost(victim: RunDirectory, other: RunDirectory) -> None:
    (victim.path / "trial.json").unlink()


def another_attempt(victim: RunDirectory, other: RunDirectory) -> None:
    shutil.copy(victim.path / "attempts/2.json", victim.path / "attempts/1.json")


DAMAGES: dict[str, tuple[Callable[[RunDirectory, RunDirectory], None], str]] = {
    "a foreign result": (foreign("result.json"), "result.json"),
    "a digit of the result": (replaced("result.json", b"80.0", b"90.0"), "result.json"),
    "a foreign trial": (foreign("trial.json"), "trial.json"),
    "no trial": (lost, ""),
    "foreign events": (foreign("events.jsonl"), "events.jsonl:1"),
    "a digit of an event": (replaced("events.jsonl", b'"loss": 1.5', b'"loss": 0.5'), "events.jsonl:2"),
    "a foreign attempt": (foreign("attempts/2.json"), "attempts/2.json"),
    "another attempt": (another_attempt, "attempts/1.json"),
    "a foreign environment": (foreign("environment.json"), "environment.json"),
    "a digit of the environment": (replaced("environment.json", b"2.13.0", b"2.14.0"), "environment.json"),
}
IN_TABLES = ("a foreign result", "a digit of the result", "a foreign trial", "no trial")
"""Damages that `status` and `report` notice, though the result was collected before."""


@pytest.mark.parametrize("what", DAMAGES)
def test_it_is_named_in_rebuild_status_and_report(call: Call, runs: Path, what: str) -> None:
    change, name = DAMAGES[what]
    victim, other = RunDirectory(runs / VICTIM.id), RunDirectory(runs / OTHER.id)
    file = f"{victim.path}/{name}".removesuffix("/")
    change(victim, other)
    if what in IN_TABLES:
        assert f"damaged: {file}" in call("status").err
        assert f"damaged: {file}" in call("report", "mine", "--json").out
    rebuilt = call("db", "rebuild")
    assert f"damaged: {file}" in rebuilt.err
    assert "1 damaged file" in rebuilt.out
    (row,) = json.loads(call("results", "--json").out)
    assert (row["mean"], row["n"], row["state"]) == (81.0, 1, "failed")
    assert f"damaged: {file}" in call("status").err
    assert VICTIM.id in call("report", "mine", "--json").out


def test_a_lost_request_is_written_again(call: Call, runs: Path) -> None:
    (file,) = request_files(runs)
    content = file.read_bytes()
    file.unlink()
    rebuilt = call("db", "rebuild")
    assert f"kept: request {file.stem} (mine): its file was missing" in rebuilt.err
    assert file.read_bytes() == content
    file.unlink()
    Path("dropbench.db").unlink()
    assert "names 2 trials." in call("db", "rebuild").out


def test_a_half_written_attempt_and_event_are_no_damage(call: Call, runs: Path) -> None:
    victim = RunDirectory(runs / VICTIM.id)
    (victim.path / "attempts" / "3.json").write_bytes(b'{"number": 3, "sta')
    with (victim.path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "train", "st')
    victim.append_event("resume", step=1)
    with (victim.path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "train", "st')
    assert "0 damaged files" in call("db", "rebuild").out
    assert json.loads(call("results", "--json").out)[0]["n"] == 2


def test_a_foreign_checkpoint_is_named(call: Call, runs: Path) -> None:
    victim, other = RunDirectory(runs / VICTIM.id), RunDirectory(runs / OTHER.id)
    for directory in (victim, other):
        checkpoint.save_weights(directory.path / "checkpoint", 7, {"weight": torch.ones(2)})
    assert "0 damaged files" in call("db", "rebuild").out
    foreign("checkpoint/weights-000000007.pt")(victim, other)
    (victim.path / "checkpoint" / "step-000000007.pt").write_bytes(b"cut short")
    rebuilt = call("db", "rebuild")
    assert f"damaged: {victim.path}/checkpoint/step-000000007.pt: damaged (File is not a zip file)" in rebuilt.err
    assert f"damaged: {victim.path}/checkpoint/weights-000000007.pt: damaged (it is not of this trial)" in rebuilt.err
    assert json.loads(call("results", "--json").out)[0]["n"] == 2


def test_a_foreign_analysis_leaves_the_result(call: Call, runs: Path) -> None:
    victim, other = RunDirectory(runs / VICTIM.id), RunDirectory(runs / OTHER.id)
    for directory, value in ((victim, 0.5), (other, 0.25)):
        directory.analyses.mkdir()
        directory.write("analysis/occlusion.json", {"scalars": {"accuracy@0.5": value}})
    foreign("analysis/occlusion.json")(victim, other)
    rebuilt = call("db", "rebuild")
    assert f"damaged: {victim.analyses}/occlusion.json: damaged (it is of trial '{OTHER.id}')" in rebuilt.err
    rows = json.loads(call("results", "--metric", "all", "--json").out)
    assert {row["metric"]: (row["mean"], row["n"]) for row in rows} == {
        "accuracy": (80.5, 2), "occlusion/accuracy@0.5": (0.25, 1),
    }  # fmt: skip
