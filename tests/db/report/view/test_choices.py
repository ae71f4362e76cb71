"""`rank` on tuned presets: only chosen candidates count, in the block of their column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import Runs
from tests.db.conftest import Call
from tests.docs.reference.given import campaign, extended

ROWS = ("none", "stochastic-depth", "dropkey")
CHOSEN = 97.0


def tuned(runs: Path, rows: tuple[str, ...] = ROWS, data: tuple[str, ...] = ("digits",), whole: bool = False) -> None:
    """Write a campaign in which the last candidate of each row has the best dev and the highest test accuracy."""
    for row in rows:
        trials = campaign(runs, [row], preset="small", data=data, whole=whole)
        best = trials[-1].config_id
        for trial in trials:
            directory = Runs(runs)[trial.id]
            score = CHOSEN + len(row) / 10 if trial.config_id == best else 50.0
            metrics = {"test/accuracy": score, "dev/accuracy": score, "train/loss": 0.5}
            directory.write_result({"format": 1, "metrics": metrics, "notes": [], "selected_step": 1, "steps": 1})


def ranking(call: Call, *arguments: str) -> tuple[dict[str, Any], list[str]]:
    done = call("compare", "--rank", *arguments, "--json")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    return {row["regularizer"]: row["improvement"] for row in content["rows"]}, content["notes"]


@pytest.fixture
def reference(folder: Path) -> Path:
    tuned(folder / "theirs")
    extended(folder / "x.zip", folder / "theirs")
    return folder / "x.zip"


def expected(row: str) -> Any:
    base = CHOSEN + len("none") / 10
    return pytest.approx(100 * (CHOSEN + len(row) / 10 - base) / base) if row != "none" else None


def test_the_chosen_candidates_of_a_reference_are_ranked(call: Call, reference: Path) -> None:
    """Also a row that overrides a key of the recipe, and rows that chose another learning rate."""
    improvement, notes = ranking(call, "--with", str(reference))
    assert improvement == {row: expected(row) for row in ROWS}
    assert not any("configurations of a regularizer" in note for note in notes)


def test_a_column_that_still_chooses_is_left_out(call: Call, reference: Path, folder: Path) -> None:
    tuned(folder / "runs", ("none", "dropkey"), ("digits", "digits-small"), whole=True)
    assert call("db", "rebuild").code == 0
    improvement, notes = ranking(call, "--with", str(reference))
    assert improvement == {row: expected(row) for row in ROWS}
    assert any(note.startswith("Digits (few): choosing, ") for note in notes)
    assert ranking(call)[0] == {}
