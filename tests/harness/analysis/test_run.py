"""``dropbench analyze``: the command, its files, and the database."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Metrics
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.run_record import read_run_record
from dropbench.db.store.store import open_store
from dropbench.harness.analysis import ANALYSES
from dropbench.harness.cli.main import run
from dropbench.harness.runs.run_directory import RunDirectory
from tests.harness.analysis.trained_runs import make_run, make_trial
from tests.paths import DOCS


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A trained trial that is also in the database."""
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path / 'test.db'}")
    directory = make_run(tmp_path / "runs", make_trial(schedule="decreasing"))
    with open_store(f"sqlite:///{tmp_path / 'test.db'}") as store:
        store.record([read_run_record(directory)])
    return directory


def rows(file: Path) -> dict[str, float | None]:
    with open_store(f"sqlite:///{file}") as store, reading(store.engine) as connection:
        return {row.name: row.value for row in connection.execute(select(Metrics.c.name, Metrics.c.value))}


def test_output_files_and_database_rows_agree(
    tmp_path: Path, directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", directory.id[:6], "entropy", "--samples", "30", "--device", "cpu", "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert not err
    options = {"trial": directory.id, "kind": "entropy", "split": "test", "samples": 30}
    assert options.items() <= report.items()
    folder = directory.path / "analysis"
    assert sorted(map(str, folder.iterdir())) == sorted(report["files"])
    stored = json.loads((folder / "entropy.json").read_text())
    del stored["digest"]
    assert stored == {"format": 1, **{key: value for key, value in report.items() if key != "files"}}
    with np.load(folder / "entropy.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {"encoder-self.1": (30, 4), "encoder-self.2": (30, 4)}
        assert float(arrays["encoder-self.1"].mean()) == pytest.approx(report["scalars"]["encoder-self.1"])
    assert (folder / "entropy.png").read_bytes().startswith(b"\x89PNG")
    metrics = rows(tmp_path / "test.db")
    assert metrics["entropy/mean"] == report["scalars"]["mean"]
    assert metrics["test/accuracy"] == (directory.result() or {})["metrics"]["test/accuracy"]
    with open_store(f"sqlite:///{tmp_path / 'again.db'}") as store:
        rebuild(store, tmp_path / "runs")
    assert rows(tmp_path / "again.db") == metrics


def test_the_table_is_printed_and_the_files_are_listed(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", directory.id, "keep-rate", "--samples", "5", "--split", "dev"]) == 0
    out, err = capsys.readouterr()
    assert "keep-rate/kept" in out
    assert err.split() == [str(directory.path / "analysis" / f"keep-rate.{end}") for end in ("png", "npz", "json")]


def test_output_to_another_folder_changes_neither_run_nor_database(tmp_path: Path, directory: RunDirectory) -> None:
    before = rows(tmp_path / "test.db")
    assert run(["analyze", directory.id, "disagreement", "--samples", "5", "-o", str(tmp_path / "new" / "folder")]) == 0
    assert len(list((tmp_path / "new" / "folder").glob("disagreement.*"))) == 3
    assert not (directory.path / "analysis").exists()
    assert rows(tmp_path / "test.db") == before


def test_no_database_is_created(tmp_path: Path, directory: RunDirectory) -> None:
    (tmp_path / "test.db").unlink()
    assert run(["analyze", directory.id, "entropy", "--samples", "5"]) == 0
    assert not (tmp_path / "test.db").exists()


def test_a_repeated_analysis_replaces_the_old_one(tmp_path: Path, directory: RunDirectory) -> None:
    for samples in ("5", "50"):
        assert run(["analyze", directory.id, "diversity", "--samples", samples]) == 0
    stored = json.loads((directory.path / "analysis" / "diversity.json").read_text())
    assert stored["samples"] == 50
    assert rows(tmp_path / "test.db")["diversity/mean"] == stored["scalars"]["mean"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"scalars": {"mean": "high"}}', '{"scalars": 3}'])
def test_a_damaged_analysis_is_ignored_but_the_result_is_read(directory: RunDirectory, content: str) -> None:
    (directory.path / "analysis").mkdir()
    (directory.path / "analysis" / "entropy.json").write_text(content)
    directory.write("analysis/sparsity.json", {"scalars": {"mean": 1.5, "none": None}})
    record = read_run_record(directory)
    assert str(directory.path / "analysis" / "entropy.json") in " ".join(record.damaged)
    assert record.state == "succeeded"
    names = {name: value for name, step, value in record.metrics if step == -1}
    assert {"sparsity/mean": 1.5, "sparsity/none": None}.items() <= names.items()
    assert not any(name.startswith("entropy/") for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["zzzz", "entropy"], "unknown state, suite or trial id 'zzzz'"),
        (["0000", "entropy"], "no trial '0000' in"),
        (["ID", "entrpy"], "unknown analysis 'entrpy': did you mean entropy"),
        (["ID", "entropy", "--samples", "99999"], "--samples 99999: expected 1 to"),
        (["ID", "entropy", "--split", "all"], "--split"),
        (["ID", "entropy", "--device", "tpu"], "unknown device 'tpu'"),
        (["ID", "entropy", "--samples", "2", "-o", "FILE"], "expected a folder to write to"),
    ],
)
def test_user_errors_are_reported_in_one_line(
    tmp_path: Path, directory: RunDirectory, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "file").touch()
    values = {"ID": directory.id, "FILE": str(tmp_path / "file")}
    assert run(["analyze", *(values.get(argument, argument) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert len(err.splitlines()) == 1


def test_an_analysis_from_a_plug_in_runs_like_a_built_in_one(
    tmp_path: Path, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of docs/analyses.md works verbatim."""
    monkeypatch.setenv("DROPBENCH_PLUGINS", "")  # restored after the test: --plugin sets it
    monkeypatch.setattr(ANALYSES, "_entries", dict(ANALYSES._entries))
    text = (DOCS / "analyses.md").read_text(encoding="utf-8")
    (tmp_path / "first_key.py").write_text(text.split("```python\n")[1].split("```")[0], encoding="utf-8")
    arguments = ["analyze", directory.id, "first-key", "--samples", "20", "--plugin", str(tmp_path / "first_key.py")]
    assert run(arguments) == 0
    metrics = rows(tmp_path / "test.db")
    assert 0 < (metrics["first-key/encoder-self.1"] or 0) < 1
