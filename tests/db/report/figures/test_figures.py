"""Figures of suites, drawn from their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.db.report.figures.figures import _curves, figure
from dropbench.db.report.view.build import with_subsets
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.schema import FigureSpec
from tests.db.report import tables


def test_panels_of_a_subset_are_marked(filled: View, tmp_path: Path) -> None:
    """Their hollow markers are published values, measured on the complete data."""
    directory = RunDirectory(tmp_path / filled.cells["none", "TREC"].seeds[0].id)
    directory.path.mkdir()
    directory.write_result({"metrics": {}, "notes": ["subset: train: 60 rows"]})
    suite = filled.suite.model_copy(update={"figure": FigureSpec(kind="curves", over="ratio")})
    request = filled.request.model_copy(update={"suite": suite})
    view = with_subsets(View(request, filled.rows, filled.columns, filled.cells), tmp_path)
    titles = [axes.get_title() for axes in _curves(view, tmp_path).axes]
    assert titles == ["text-transformer, trec (subset)", "text-transformer, mr"]


@pytest.mark.parametrize("over", ["ratoi", "unit"])
def test_curves_over_no_number_are_an_error(store: Store, tmp_path: Path, over: str) -> None:
    suite = tables.suite(["TREC"]).model_copy(update={"figure": FigureSpec(kind="curves", over=over)})
    view = tables.filled(store, of=suite)
    with pytest.raises(InputError, match=f"no figure over {over}: it is no number of row 'dropkey 0.3'"):
        figure(view, tmp_path)
