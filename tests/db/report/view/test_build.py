"""Marks and notes on columns whose runs used a subset of the published data."""

from __future__ import annotations

import json
from pathlib import Path

from dropbench.db.report.formats.documents import as_json, as_markdown
from dropbench.db.report.view.build import with_subsets
from dropbench.db.report.view.view import View
from dropbench.harness.runs.run_directory import RunDirectory
from tests.db.report import tables

NOTE = "train: 60 rows, Li and Roth (2002) has 5,452"


def write_notes(view: View, column: str, runs: Path, *notes: str) -> None:
    """Write notes to the first successful run of a column."""
    seed = next(seed for outcome in view.column(column) for seed in outcome.seeds if seed.state == "succeeded")
    (runs / seed.id).mkdir(parents=True)
    RunDirectory(runs / seed.id).write_result({"metrics": {}, "notes": ["dev is a tenth of train", *notes]})


def test_columns_of_a_subset_are_marked(filled: View, tmp_path: Path) -> None:
    write_notes(filled, "TREC", tmp_path, f"subset: {NOTE}")
    write_notes(filled, "MR", tmp_path)
    view = with_subsets(filled, tmp_path)
    assert {outcome.subset for outcome in view.column("TREC")} == {(NOTE,)}
    assert {outcome.subset for outcome in view.column("MR")} == {()}
    text = tables.printed(view, 120)
    assert "TREC (subset) ↑" in text
    assert "MR ↑" in text
    assert f"subset: trec, {NOTE}" in text
    assert "TREC (subset) ↑" in as_markdown(view)
    records = json.loads(as_json(view))["cells"]
    assert [record["subset"] for record in records] == [record["column"] == "TREC" for record in records]


def test_missing_and_damaged_runs_have_no_notes(filled: View, tmp_path: Path) -> None:
    write_notes(filled, "TREC", tmp_path, f"subset: {NOTE}")
    (damaged,) = tmp_path.glob("*/result.json")
    damaged.write_text("{")
    assert with_subsets(filled, tmp_path).cells == filled.cells
    assert with_subsets(filled, tmp_path / "nowhere").cells == filled.cells
