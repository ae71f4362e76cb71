"""The tables of a suite on the dashboard: the rows that it finds for configurations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from db.report.view.variants import variants, view_of
from db.store.store import Store
from harness.regularizers.spec import complete_spec, parse_spec
from harness.settings import Settings
from harness.suites.cell import SuiteOptions

if TYPE_CHECKING:
    from tests.db.report.conftest import Runs, Tables


@pytest.mark.parametrize(
    "written_as", ["drophead:ratio=0.25 + dropkey:ratio=0.3", "dropkey:ratio=0.3 + drophead:ratio=0.25"]
)
def test_a_composition_is_a_row_in_whichever_order_it_was_written(
    store: Store, tables: Tables, written: Runs, tmp_path: Path, monkeypatch: Any, written_as: str
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = tables.suite()
    tables.write(suite, tmp_path / "mine.yaml")
    spec = complete_spec(*parse_spec(written_as)[:2])
    cells = tables.resolve(suite, SuiteOptions(seeds=(0,), regularizers=(written_as,)))
    for index, cell in enumerate(cells[-2:], start=len(cells) - 2):
        trials = [trial.model_copy(update={"regularizer": spec}) for trial in cell.trials]
        cells[index] = replace(cell, trials=trials)
    written.fill(store, tmp_path / "runs", cells, {(cell.cell.row, cell.cell.column): (50.0,) for cell in cells})
    loaded, [variant] = variants("mine", store)
    assert loaded is not None
    view = view_of(loaded, variant, store, Settings(runs=tmp_path / "runs"))
    label = "drophead:ratio=0.25 + dropkey:ratio=0.3"  # without defaults
    assert view.rows[-1] == label
    assert [result.mean for result in view.cells.values() if result.row == label] == [50.0, 50.0]
