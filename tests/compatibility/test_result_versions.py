"""Trials of 969bcf6 have result version 1: they keep their ids, and today's engine neither mixes nor loses them."""

from __future__ import annotations

import json
from pathlib import Path

from harness.runs.run_directory import Runs
from harness.trials.result_versions import ENGINE
from tests.compatibility.command import Done, dropbench
from tests.compatibility.written import FIRST_VERSIONS

NOTE = f"trained with result version 1 of engine; version {ENGINE} is current"


def call(folder: Path, *arguments: str) -> Done:
    done = dropbench(folder, *arguments, "--plugin", "tiny.py")
    assert done.code == 0, done.err
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


def test_a_report_says_that_cells_were_trained_with_an_earlier_version(complete: Path) -> None:
    before = call(complete, "report", "tiny.yaml", *FIRST_VERSIONS, "--format", "json").json["cells"]
    assert all(cell["n"] for cell in before)
    cells = call(complete, "report", "tiny.yaml", "--format", "json").json["cells"]
    assert [(cell["n"], cell["mean"]) for cell in cells] == [(0, None)] * len(before)
    assert all(NOTE in cell["incomplete"] for cell in cells)
    assert NOTE in " ".join(call(complete, "report", "tiny.yaml").out.split())


def test_an_increase_trains_again_and_says_so(complete: Path) -> None:
    old = {row["regularizer"]: row for row in dropbench(complete, "results", "task=tiny", "succeeded", "--json").json}
    done = call(complete, "run", "tiny.yaml", "--executor", "debug")
    assert f"{NOTE}: they are trained again as other trials; `dropbench results` lists both" in done.err
    assert NOTE not in done.out
    rows = call(complete, "results", "task=tiny", "succeeded", "tiny", "--json").json
    assert {row["result_versions"] for row in rows} == {None, f"engine {ENGINE}"}
    for row in rows:
        if row["result_versions"] is None:
            assert row["n"] == old[row["regularizer"]]["n"]
    pooled = call(complete, "results", "suite=tiny", "--group-by", "task", "--json").json
    assert {row["result_versions"] for row in pooled} == {None, f"engine {ENGINE}"}
    again = call(complete, "run", "tiny.yaml", "--executor", "debug")
    assert "nothing to train" in again.err


def test_a_queued_trial_is_not_trained_as_another_version(complete: Path) -> None:
    call(complete, "enqueue", "tiny.yaml", "--seeds", "9", *FIRST_VERSIONS)
    call(complete, "submit", "queued", "suite=tiny", "--executor", "debug")
    call(complete, "collect")
    query = "SELECT DISTINCT reason FROM v_trials WHERE task = 'tiny' AND seed = 8 AND state = 'failed'"
    (row,) = dropbench(complete, "db", "sql", "--json", query).json
    assert f"requested with result version 1 of engine; version {ENGINE} is current: enqueue it again" in row["reason"]


def test_versions_survive_a_rebuild_and_an_export(complete: Path) -> None:
    call(complete, "run", "tiny.yaml", "--executor", "debug")
    query = "SELECT trial_id, result_versions FROM v_trials WHERE result_versions IS NOT NULL ORDER BY 1"
    rows = dropbench(complete, "db", "sql", "--json", query).json
    assert rows
    for steps in (("db", "rebuild"), ("db", "export", "out"), ("db", "import", "out")):
        if steps[1] == "import":
            (complete / "dropbench.db").unlink()
        assert dropbench(complete, *steps).code == 0, steps
        assert dropbench(complete, "db", "sql", "--json", query).json == rows
    config = json.loads((complete / "runs" / rows[0]["trial_id"] / "trial.json").read_bytes())
    assert config["result_versions"] == {"engine": ENGINE}
