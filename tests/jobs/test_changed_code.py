"""An update of the package in place while trials run: no worker mixes two states of the code, and none says nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from dropbench.harness.source import FOLDERS
from tests.jobs.workplace import Workplace
from tests.paths import ROOT
from tests.patience import PATIENCE, wait


@pytest.fixture
def package(place: Workplace) -> Path:
    """A copy of the package, which the commands of the workplace are of."""
    copy = place.folder / "package"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.zip"))
    shutil.copytree(ROOT / "dropbench", copy / "dropbench", symlinks=True)
    place.environment["PYTHONPATH"] = str(copy)
    return copy


def update(package: Path, file: str) -> None:
    with open(package / file, "a", encoding="utf-8") as opened:
        opened.write("\n# another state of the code\n")


@pytest.mark.slow
def test_an_update_stops_a_campaign_and_names_what_other_code_trained(place: Workplace, package: Path) -> None:
    place.pause.write_text("hold")
    process = place.start("run", "tiny.yaml", "--parallel", "1", "--seeds", "1", "--preset", "one")
    wait(lambda: place.running(), "a trial in training")
    update(package, "harness/training/checkpoint.py")
    update(package, "db/report/page/charts.py")
    place.pause.write_text("")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, err
    assert "has changed since this process started: run the command again, which continues" in err
    assert "Traceback" not in err
    place.ok("run", "tiny.yaml", "--seeds", "1", "--preset", "one", fresh=True)
    states = [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()]
    assert all(own[-1] == "succeeded" for own in states)


@pytest.mark.slow
def test_a_half_trained_trial_continues_with_a_word(place: Workplace, package: Path) -> None:
    place.pause.write_text("0.05")
    words = ("run", "tiny.yaml", "--preset", "one", "--set", "steps=200")
    process = place.start(*words, "--parallel", "1")
    wait(lambda: place.running(), "a trial in training")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    (half,) = [directory for directory in place.directories() if directory.attempts()]
    place.pause.write_text("")
    update(package, "harness/training/checkpoint.py")
    done = place.ok(*words, fresh=True)
    assert f"1 trial half trained by other code continue: see `dropbench logs {half.id}`" in done.stderr
    codes = {attempt["code"] for attempt in half.attempts()}
    assert len(codes) == 2
    result = half.result()
    assert result is not None
    (note,) = [note for note in result["notes"] if "states of the code" in note]
    assert all(code in note for code in codes)
    assert note in (half.path / "log.txt").read_text(encoding="utf-8")
    rows = json.loads(place.ok("results", "--json").stdout)
    assert {(row["regularizer"], "mixed-code" in row["libraries"]) for row in rows} == {
        ("none", half.trial().regularizer.name == "none"),
        ("dropkey", half.trial().regularizer.name == "dropkey"),
    }
    assert "mixed-code" in place.ok("report", "tiny.yaml", "--preset", "one").stdout


@pytest.mark.slow
def test_variables_of_a_launcher_do_not_let_training_wait(place: Workplace) -> None:
    launcher = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    for steps, executor in ((5, "local"), (6, "debug")):
        words = ("run", "tiny.yaml", "--preset", "one", "--set", f"steps={steps}", "--executor", executor)
        done = place.call(*words, env={**place.environment, **launcher}, fresh=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_trial_that_only_another_can_replace_is_not_retried(place: Workplace, package: Path) -> None:
    place.ok("enqueue", "tiny.yaml", "--preset", "one", fresh=True)
    file = package / "harness" / "trials" / "result_versions.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("ENGINE = 1\n", "ENGINE = 2\n"), encoding="utf-8")
    done = place.call("submit", "--executor", "debug", fresh=True)
    cause = "requested with result version 1 of engine; version 2 is current"
    retried = place.ok("retry", "failed", fresh=True)
    assert f"Not requeued: 2 trials {cause}: enqueue them again." in retried.stderr, done.stderr
    assert "Requeued" not in retried.stdout
    again = place.ok("run", "tiny.yaml", "--preset", "one", fresh=True)
    assert "retry" not in again.stderr
