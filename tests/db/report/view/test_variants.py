"""The tables of a suite on the dashboard: the rows that it finds for configurations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from db.report.view.variants import variants, view_of
from db.schema.tables import Memberships
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


def test_columns_with_different_result_versions_are_one_table_and_earlier_ones_another(
    store: Store, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables.write(tables.suite(), tmp_path / "mine.yaml")

    def fill(column: str, versions: dict[str, int]) -> None:
        cells = [cell for cell in tables.resolve(tables.suite()) if cell.cell.column == column]
        update = {"result_versions": versions}
        changed = [replace(cell, trials=[trial.model_copy(update=update) for trial in cell.trials]) for cell in cells]
        tables.fill(store, changed, dict.fromkeys(tables.values, (50.0, 50.0, 50.0)))
        trials = [trial for cell in changed for trial in cell.trials]
        with store.engine.begin() as connection:
            connection.execute(insert(Memberships), [{"suite": "mine", "trial_id": trial.id} for trial in trials])

    def found() -> dict[str, set[str]]:
        return {one.label: {config["data"] for config in one.configs.values()} for one in variants("mine", store)[1]}

    fill("TREC", {"engine": 2, "model text-transformer": 2})
    fill("MR", {"engine": 2})
    assert found() == {"preset mini": {"trec", "mr"}}
    fill("TREC", {"engine": 2})
    assert found() == {"preset mini": {"trec", "mr"}, "preset mini, earlier result versions": {"trec"}}
    fill("TREC", {})
    assert found() == {
        "preset mini": {"trec", "mr"}, "preset mini, earlier result versions": {"trec"},
        "preset mini, earlier result versions (2)": {"trec"},
    }  # fmt: skip
