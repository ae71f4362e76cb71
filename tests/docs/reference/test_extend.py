"""Extending the file of reference results."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from db.reference.load import open_reference
from db.store.run_record import RunRecord
from docs.reference.extend import editable, packed
from docs.reference.holes import holes, tables
from harness.errors import InputError
from harness.files import write_json
from harness.regularizers.drop import UnitDrop
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import load_suite
from harness.trials.result_versions import ENGINE
from tests.docs.reference.given import SUITE, campaign, extended


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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
        assert [options for _, options in tables([load_suite(SUITE)], reference)] == [SuiteOptions()]


def test_nothing_of_the_machine_is_kept_but_what_matters_for_results(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"], seeds=(0,))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"secret" not in content
    assert b"/home/me" not in content
    assert b"A processor" in content
    assert b"CC BY 4.0" in content


def test_metadata_describe_each_table_and_its_columns(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"], seeds=(0, 1))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        metadata = json.loads(archive.read("croissant.json"))
        for records in metadata["recordSet"]:
            header = archive.read(f"{records['name']}.csv").decode().splitlines()[0]
            assert [field["name"] for field in records["field"]] == header.split(",")
    assert metadata["version"] == "1.2.0"
    assert metadata["datePublished"] == "2026-01-02"


def test_trials_that_deviate_are_refused_with_the_reason(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    campaign(runs, ["none"], seeds=(0,))
    campaign(runs, ["dropkey"], seeds=(0,), overrides={"lr": 0.5})
    [old] = campaign(runs, ["dropout"], seeds=(0,))
    others = {item: version for item, version in old.result_versions.items() if item != "engine"}
    earlier = old.model_copy(update={"result_versions": others})
    directory = RunDirectory.create(runs, earlier)
    for name in ("environment.json", "result.json", "suites.json"):
        (directory.path / name).write_bytes((runs / old.id / name).read_bytes())
    [compiled] = campaign(runs, ["r-drop"], seeds=(0,))
    write_json(runs / compiled.id / "environment.json", {"compile": True})
    [plugin] = campaign(runs, ["drophead"], seeds=(0,))
    RunDirectory.create(runs, plugin.model_copy(update={"plugins": {"a.py": "0" * 64}}))
    extension = extended(tmp_path / "x.zip", runs)
    assert extension.total == 3  # none, dropout and drophead
    assert extension.refused == {
        "overridden settings, or a recipe that has changed since": 1,
        f"trained with result version 1 of engine; version {ENGINE} is current": 1,
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
    with zipfile.ZipFile(file) as archive:
        for table in ("trials", "metrics", "attempts", "details", "predicted"):
            key = "id" if table == "trials" else "trial_id"
            rows = list(csv.DictReader(archive.read(f"{table}.csv").decode().splitlines()))
            assert len({row[key] for row in rows}) == 6
        configs = list(csv.DictReader(archive.read("configs.csv").decode().splitlines()))
    assert sorted(row["result_versions"] for row in configs)[-1].endswith("regularizer dropkey 7")
    assert len(configs) == 2


def test_other_results_of_a_trial_do_not_replace_those_in_the_file(tmp_path: Path) -> None:
    campaign(tmp_path / "a", ["none"], seeds=(0,))
    extended(tmp_path / "x.zip", tmp_path / "a")
    content = (tmp_path / "x.zip").read_bytes()
    [trial] = campaign(tmp_path / "b", ["none"], seeds=(0,), base=10.0)
    assert extended(tmp_path / "x.zip", tmp_path / "b").conflicts == [trial.id]
    assert (tmp_path / "x.zip").read_bytes() == content


def test_holes_are_listed_with_their_reasons(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"])
    campaign(tmp_path / "runs", ["dropkey"], seeds=(0, 1))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    with open_reference(str(tmp_path / "x.zip")) as reference, editable(tmp_path / "none.zip") as own:
        head, *lines = holes(load_suite(SUITE), SuiteOptions(), reference, own, Settings())
    assert head.startswith("field/vision, preset mini: 1 of ")
    assert "  Digits / dropkey: n = 2: not run" in lines
    assert not any("/ none:" in line for line in lines)


def test_a_tuned_cell_whose_candidates_were_skipped_says_why(tmp_path: Path) -> None:
    campaign(tmp_path / "runs", ["none"], preset="small", data=("digits",))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    suite, settings = load_suite(SUITE), Settings(data=tmp_path / "no-data")
    cells = suite.trials(SuiteOptions(preset="small", data=("digits",)), settings)
    records = [RunRecord(trial, "skipped", "no site") for cell, own in cells if cell.row == "unidrop" for trial in own]
    assert len(records) == 15
    with open_reference(str(tmp_path / "x.zip")) as reference, editable(tmp_path / "none.zip") as own:
        own.record(records)
        head, *lines = holes(suite, SuiteOptions(preset="small"), reference, own, settings)
    assert head.endswith("1 are skipped")
    assert "  Digits / unidrop: n = 0: skipped: no site" in lines
    assert "  Digits / dropkey: n = 0: 0/3 candidates done" in lines


def test_a_table_has_the_data_and_the_seeds_of_the_file(tmp_path: Path) -> None:
    """Cells without a trial are holes, also without the data on this machine."""
    (tmp_path / "data/trec").mkdir(parents=True)
    for split in ("train", "test"):
        (tmp_path / f"data/trec/TREC.{split}.all").write_text("NUM:dist How far is it ?\n" * 20)
    text: dict[str, Any] = {"suite": "field/text", "preset": "small", "data": ("trec",)}
    campaign(tmp_path / "runs", folder=tmp_path / "data", seeds=range(6), **text)
    file = tmp_path / "x.zip"
    extended(file, tmp_path / "runs", "field/text")
    suite = load_suite("field/text")
    with open_reference(str(file)) as reference, editable(tmp_path / "none.zip") as own:
        [(_, options)] = tables([suite], reference)
        head, *lines = holes(suite, options, reference, own, Settings())
    assert options == SuiteOptions(preset="small", data=("trec",), seeds=tuple(range(6)))
    assert head.startswith("field/text, preset small, trec: 2 of ")
    assert "  QC / drophead: n = 0: 0/3 candidates done" in lines


def test_a_missing_folder_of_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder: expected run directories"):
        extended(tmp_path / "x.zip", tmp_path / "nowhere")
