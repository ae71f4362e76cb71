"""Extending the file of reference results."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from sqlalchemy import select

from docs.reference.extend import editable, packed
from docs.reference.holes import holes, tables
from docs.reference.metadata import DESCRIPTIONS
from dropbench.db.reference.load import open_reference
from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import TABLES, Details, Predicted
from dropbench.db.schema.tables import METADATA, Attempts, Configs, Metrics, Trials
from dropbench.db.store.run_record import RunRecord
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.request import RequestedCell, write_request
from dropbench.harness.trials.result_versions import ENGINE
from dropbench.harness.trials.trial import Trial
from tests.db.records import ENDED
from tests.docs.reference.given import SUITE, campaign, extended
from tests.requests import named


def test_a_file_grows_by_new_trials_and_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    file, runs = tmp_path / "x.zip", tmp_path / "runs"
    first = campaign(runs, ["none"])
    assert sorted(extended(file, runs).added) == sorted(trial.id for trial in first)
    content = file.read_bytes()
    assert extended(file, runs).added == []
    assert file.read_bytes() == content
    campaign(runs)
    assert len(extended(file, runs).added) == 5
    grown = file.read_bytes()
    extended(tmp_path / "at-once.zip", runs)
    assert (tmp_path / "at-once.zip").read_bytes() == grown != content
    with editable(file) as store:
        assert packed(store) == grown
    with open_reference(str(file)) as reference:
        assert len(reference.states()) == 10
        (table,) = tables([SUITE], reference)
        assert (table.request.options, len(table.cells)) == (SuiteOptions(), 36)


def test_a_file_describes_each_table_and_nothing_of_the_machine_but_what_matters(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"], seeds=(0,))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
        database, metadata = archive.read("reference.db"), json.loads(archive.read("croissant.json"))
    assert b"secret" not in content
    assert b"/home/me" not in content
    assert b"A processor" in content
    assert b"CC BY 4.0" in content
    [file] = metadata["distribution"]
    assert file["sha256"] == hashlib.sha256(database).hexdigest()
    assert {*DESCRIPTIONS} == {table.name for table in (*METADATA.sorted_tables, *TABLES)}
    assert (metadata["version"], metadata["datePublished"]) == ("2.1.0", "2026-01-02")


def test_trials_that_deviate_are_refused_with_the_reason(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    campaign(runs, ["none"], seeds=(0,))
    campaign(runs, ["dropkey"], seeds=(0,), overrides={"lr": 0.5})
    [old] = campaign(runs, ["dropout"], seeds=(0,))
    earlier = old.model_copy(update={"result_versions": {"engine": 0}})
    directory = RunDirectory.create(runs, earlier)
    for name in ("environment.json", "result.json"):
        directory.write(name, RunDirectory(runs / old.id).read(name))
    write_request(runs, named(SUITE, earlier))
    [compiled] = campaign(runs, ["r-drop"], seeds=(0,))
    RunDirectory(runs / compiled.id).write("environment.json", {"compile": True})
    [plugin] = campaign(runs, ["drophead"], seeds=(0,))
    RunDirectory.create(runs, plugin.model_copy(update={"plugins": {"a.py": "0" * 64}}))
    extension = extended(tmp_path / "x.zip", runs)
    assert extension.total == 3  # none, dropout and drophead
    assert extension.refused == {
        "overridden settings, or a recipe that has changed since": 1,
        f"trained with result version 0 of engine; version {ENGINE} is current": 1,
        "compiled": 1,
    }


def test_trials_whose_result_version_is_raised_leave_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, runs = tmp_path / "x.zip", tmp_path / "runs"
    campaign(runs, ["none", "dropkey"])
    assert extended(file, runs).removed == 0
    monkeypatch.setattr(UnitDrop, "result_version", 7)
    [new] = campaign(tmp_path / "later", ["dropkey"], seeds=(0,))
    extension = extended(file, tmp_path / "later")
    assert (extension.added, extension.removed, extension.total) == ([new.id], 5, 6)
    with open_reference(str(file)) as reference, reading(reference.engine) as connection:
        for column in (Trials.c.id, *(table.c.trial_id for table in (Metrics, Attempts, Details, Predicted))):
            assert len(connection.scalars(select(column).distinct()).all()) == 6
        versions = connection.scalars(select(Configs.c.result_versions).order_by(Configs.c.result_versions)).all()
    assert versions == [None, "regularizer dropkey 7"]


def test_other_results_of_a_trial_do_not_replace_those_in_the_file(tmp_path: Path) -> None:
    campaign(tmp_path / "a", ["none"], seeds=(0,))
    extended(tmp_path / "x.zip", tmp_path / "a")
    content = (tmp_path / "x.zip").read_bytes()
    [trial] = campaign(tmp_path / "b", ["none"], seeds=(0,), base=10.0)
    assert extended(tmp_path / "x.zip", tmp_path / "b").conflicts == [trial.id]
    assert (tmp_path / "x.zip").read_bytes() == content


def test_holes_are_listed_with_their_reasons(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"])
    campaign(tmp_path / "runs", ["dropkey"], seeds=(0, 1), whole=False, at=ENDED)
    extended(tmp_path / "x.zip", tmp_path / "runs")
    with open_reference(str(tmp_path / "x.zip")) as reference, editable(tmp_path / "none.zip") as own:
        (table,) = tables([SUITE], reference)
        head, *lines = holes(table, reference, own)
    assert head.startswith("field/vision, preset mini: 1 of ")
    assert "  Digits / dropkey: n = 2: only 2 seeds requested" in lines
    assert not any("/ none:" in line for line in lines)


def test_a_tuned_cell_whose_candidates_were_skipped_says_why(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"], preset="small", data=("digits",))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    with open_reference(str(tmp_path / "x.zip")) as reference, editable(tmp_path / "none.zip") as own:
        (table,) = tables([SUITE], reference)
        (cell,) = (cell for cell in table.request.cells if cell.row == "unidrop")
        ids = [id for candidate in cell.candidates for id in candidate.trials]
        assert len(ids) == 15
        own.record(RunRecord(trial, "skipped", "no site") for trial in trials_named(cell, tmp_path / "runs"))
        head, *lines = holes(table, reference, own)
    assert head.endswith("1 are skipped")
    assert "  Digits / unidrop: n = 0: skipped: no site" in lines
    assert "  Digits / dropkey: n = 0: 0/3 candidates done" in lines


def trials_named(cell: RequestedCell, runs: Path) -> list[Trial]:
    """Return the trials of all candidates of a cell."""
    settings = Settings(data=runs / "no-data")
    return [trial for each in cell.candidates for trial in cell.with_params(each.params).trials(settings)]
