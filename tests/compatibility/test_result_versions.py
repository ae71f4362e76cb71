"""Trials of 969bcf6 have result version 1: they keep their ids, and an increase neither mixes nor loses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.runs.run_directory import Runs
from tests.compatibility.command import Done, dropbench

NOTE = "trained with result version 1 of engine; version 2 is current"
NEXT = "import harness.trials.result_versions\n\nharness.trials.result_versions.ENGINE = 2\n"


@pytest.fixture
def raised(complete: Path) -> Path:
    """A folder with the plug-in `next.py`, which stands for a version of DropBench with another engine."""
    (complete / "next.py").write_text(NEXT)
    return complete


def call(folder: Path, *arguments: str, code: int = 0) -> Done:
    done = dropbench(folder, *arguments, "--plugin", "tiny.py", "--plugin", "next.py")
    assert done.code == code, done.err
    return done


def test_trials_keep_their_ids_and_have_no_versions(kept: Path) -> None:
    directories = list(Runs(kept / "runs"))
    assert len(directories) > 20
    for directory in directories:
        trial = directory.trial()
        assert (trial.id, trial.result_versions) == (directory.id, {})
        assert "result_versions" not in trial.to_json()
        assert "result_versions" not in trial.config()
    rows = dropbench(kept, "results", "--json").json
    assert {row["result_versions"] for row in rows} == {None}
    query = "SELECT DISTINCT result_versions FROM v_trials"
    assert dropbench(kept, "db", "sql", "--json", query).json == [{"result_versions": None}]


def test_a_report_says_that_cells_were_trained_with_an_earlier_version(raised: Path) -> None:
    before = dropbench(raised, "report", "tiny.yaml", "--plugin", "tiny.py", "--format", "json").json["cells"]
    assert all(cell["n"] for cell in before)
    cells = call(raised, "report", "tiny.yaml", "--format", "json").json["cells"]
    assert [(cell["n"], cell["mean"]) for cell in cells] == [(0, None)] * len(before)
    assert all(NOTE in cell["incomplete"] for cell in cells)
    assert NOTE in " ".join(call(raised, "report", "tiny.yaml").out.split())


def test_an_increase_trains_again_and_says_so(raised: Path) -> None:
    old = {row["regularizer"]: row for row in dropbench(raised, "results", "task=tiny", "succeeded", "--json").json}
    done = call(raised, "run", "tiny.yaml", "--executor", "debug")
    assert f"{NOTE}: they are trained again as other trials; `dropbench results` lists both" in done.err
    assert NOTE not in done.out
    rows = call(raised, "results", "task=tiny", "succeeded", "tiny", "--json").json
    assert {row["result_versions"] for row in rows} == {None, "engine 2"}
    for row in rows:
        if row["result_versions"] is None:
            assert row["n"] == old[row["regularizer"]]["n"]
    pooled = call(raised, "results", "suite=tiny", "--group-by", "task", "--json").json
    assert {row["result_versions"] for row in pooled} == {None, "engine 2"}
    again = call(raised, "run", "tiny.yaml", "--executor", "debug")
    assert "nothing to train" in again.err


def test_a_queued_trial_is_not_trained_as_another_version(raised: Path) -> None:
    assert dropbench(raised, "enqueue", "tiny.yaml", "--seeds", "9", "--plugin", "tiny.py").code == 0
    call(raised, "submit", "queued", "suite=tiny", "--executor", "debug")
    call(raised, "collect")
    query = "SELECT DISTINCT reason FROM v_trials WHERE task = 'tiny' AND seed = 8 AND state = 'failed'"
    (row,) = dropbench(raised, "db", "sql", "--json", query).json
    assert "requested with result version 1 of engine; version 2 is current: enqueue it again" in row["reason"]


def test_versions_survive_a_rebuild_and_an_export(raised: Path) -> None:
    call(raised, "run", "tiny.yaml", "--executor", "debug")
    query = "SELECT trial_id, result_versions FROM v_trials WHERE result_versions IS NOT NULL ORDER BY 1"
    rows = dropbench(raised, "db", "sql", "--json", query).json
    assert rows
    for steps in (("db", "rebuild"), ("db", "export", "out"), ("db", "import", "out")):
        if steps[1] == "import":
            (raised / "dropbench.db").unlink()
        assert dropbench(raised, *steps).code == 0, steps
        assert dropbench(raised, "db", "sql", "--json", query).json == rows
    config = json.loads((raised / "runs" / rows[0]["trial_id"] / "trial.json").read_bytes())
    assert config["result_versions"] == {"engine": 2}
