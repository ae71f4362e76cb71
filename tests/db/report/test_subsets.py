"""A table says where its data are a part of what was published, as the runs noted it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from db.report.formats import as_json, as_markdown
from db.report.subsets import with_subsets
from db.report.view import View
from harness.rundir import RunDirectory

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables

NOTE = "train: 60 rows, Li and Roth (2002) has 5,452"


def noted(view: View, column: str, runs: Path, *notes: str) -> None:
    """The first run of a column that succeeded has these notes."""
    seed = next(seed for outcome in view.column(column) for seed in outcome.seeds if seed.state == "succeeded")
    (runs / seed.id).mkdir(parents=True)
    RunDirectory(runs / seed.id).write_result({"metrics": {}, "notes": ["dev is a tenth of train", *notes]})


def test_columns_of_a_subset_are_marked(filled: View, tables: Tables, tmp_path: Path) -> None:
    noted(filled, "TREC", tmp_path, f"subset: {NOTE}")
    noted(filled, "MR", tmp_path)
    view = with_subsets(filled, tmp_path)
    assert {outcome.subset for outcome in view.column("TREC")} == {(NOTE,)}
    assert {outcome.subset for outcome in view.column("MR")} == {()}
    told = tables.drawn(view, 120)
    assert "TREC (subset) ↑" in told
    assert "MR ↑" in told
    assert f"subset: trec, {NOTE}" in told
    assert "TREC (subset) ↑" in as_markdown(view)
    records = json.loads(as_json(view))["cells"]
    assert [record["subset"] for record in records] == [record["column"] == "TREC" for record in records]


def test_nothing_is_said_where_the_runs_are_not_here(filled: View, tmp_path: Path) -> None:
    noted(filled, "TREC", tmp_path, f"subset: {NOTE}")
    (damaged,) = tmp_path.glob("*/result.json")
    damaged.write_text("{")
    assert with_subsets(filled, tmp_path).cells == filled.cells
    assert with_subsets(filled, tmp_path / "nowhere").cells == filled.cells
