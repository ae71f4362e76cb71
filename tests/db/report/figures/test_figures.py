"""The figure of a suite as drawn from its table."""

from __future__ import annotations

from pathlib import Path

from db.report.figures.figures import _curves
from db.report.view.build import with_subsets
from db.report.view.view import View
from harness.runs.run_directory import RunDirectory
from harness.suites.schema import FigureSpec


def test_panels_of_a_subset_are_marked(filled: View, tmp_path: Path) -> None:
    """Their hollow markers are published values, measured on the complete data."""
    directory = RunDirectory(tmp_path / filled.cells["none", "TREC"].seeds[0].id)
    directory.path.mkdir()
    directory.write_result({"metrics": {}, "notes": ["subset: train: 60 rows"]})
    suite = filled.suite.model_copy(update={"figure": FigureSpec(kind="curves", over="ratio")})
    view = with_subsets(View(suite, filled.preset, filled.rows, filled.columns, filled.cells), tmp_path)
    titles = [axes.get_title() for axes in _curves(view, tmp_path).axes]
    assert titles == ["text-transformer, trec (subset)", "text-transformer, mr"]
