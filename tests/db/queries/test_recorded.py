"""Trials that are looked up in the database, since their data are not on this machine."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import event

from db.report.view.build import resolve_cells
from db.report.view.run_options import trial_ids
from db.store.run_record import RunRecord
from db.store.store import Store
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.search_space import parse_space
from harness.suites.suite import load_suite
from harness.trials.task import spec_of
from harness.trials.trial import DataRef

TABLE = "dropattention/table3"


def test_configurations_are_read_once_for_all_cells_of_a_table(store: Store, tmp_path: Path) -> None:
    suite = load_suite(TABLE)
    options = SuiteOptions(data=("trec",), seeds=(0,), sweep=parse_space(["ratio=0.1,0.2"]))
    requests = [each.request for cell in suite.cells(options) for each in cell.grid_cells()]
    drafts = [spec_of(request.task).draft_for(request) for request in requests]
    data = DataRef(name="trec", fingerprint="0" * 16)
    trials = [draft.model_copy(update={"data": data}) for draft in drafts if draft is not None]
    store.record(RunRecord(trial, "succeeded", suites=[TABLE]) for trial in trials)
    statements: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    cells = resolve_cells(suite, options, Settings(data=tmp_path), store)
    assert trial_ids(cells) == {trial.id for trial in trials}
    assert sum("FROM configs" in statement for statement in statements) == 2, "fingerprints, and configurations"
