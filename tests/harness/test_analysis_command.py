"""``dropbench analyze``: the command, its files, and the database."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from db.connection import reading
from db.models import Metrics
from db.rebuild import rebuild
from db.snapshot import snapshot
from db.store import open_store
from harness.analysis import ANALYSES
from harness.cli import run
from harness.rundir import RunDirectory
from tests.harness.trained_runs import make_run, make_trial


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A trained trial, in a database too."""
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path / 'test.db'}")
    made = make_run(tmp_path / "runs", make_trial(schedule="decreasing"))
    with open_store(f"sqlite:///{tmp_path / 'test.db'}") as store:
        store.record([snapshot(made)])
    return made


def rows(file: Path) -> dict[str, float | None]:
    with open_store(f"sqlite:///{file}") as store, reading(store.engine) as connection:
        return {row.name: row.value for row in connection.execute(select(Metrics.c.name, Metrics.c.value))}


def test_results_files_and_rows_agree(
    tmp_path: Path, directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", directory.id[:6], "entropy", "--samples", "30", "--device", "cpu", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not err
    assert (found["trial"], found["kind"], found["split"], found["samples"]) == (directory.id, "entropy", "test", 30)
    folder = directory.path / "analysis"
    assert sorted(map(str, folder.iterdir())) == sorted(found["files"])
    kept = json.loads((folder / "entropy.json").read_text())
    assert kept == {"format": 1, **{key: value for key, value in found.items() if key != "files"}}
    with np.load(folder / "entropy.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {"encoder-self.1": (30, 4), "encoder-self.2": (30, 4)}
        assert float(arrays["encoder-self.1"].mean()) == pytest.approx(found["scalars"]["encoder-self.1"])
    assert (folder / "entropy.png").read_bytes().startswith(b"\x89PNG")
    there = rows(tmp_path / "test.db")
    assert there["entropy/mean"] == found["scalars"]["mean"]
    assert there["test/accuracy"] == (directory.result() or {})["metrics"]["test/accuracy"]
    with open_store(f"sqlite:///{tmp_path / 'again.db'}") as store:
        rebuild(store, tmp_path / "runs")
    assert rows(tmp_path / "again.db") == there


def test_a_table_on_the_screen_and_the_files_beside_it(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", directory.id, "keep-rate", "--samples", "5", "--split", "dev"]) == 0
    out, err = capsys.readouterr()
    assert "keep-rate/kept" in out
    assert err.split() == [str(directory.path / "analysis" / f"keep-rate.{end}") for end in ("png", "npz", "json")]


def test_a_folder_of_ones_own_leaves_run_and_database_alone(tmp_path: Path, directory: RunDirectory) -> None:
    before = rows(tmp_path / "test.db")
    assert run(["analyze", directory.id, "disagreement", "--samples", "5", "-o", str(tmp_path / "new" / "folder")]) == 0
    assert len(list((tmp_path / "new" / "folder").glob("disagreement.*"))) == 3
    assert not (directory.path / "analysis").exists()
    assert rows(tmp_path / "test.db") == before


def test_without_a_database_none_is_made(tmp_path: Path, directory: RunDirectory) -> None:
    (tmp_path / "test.db").unlink()
    assert run(["analyze", directory.id, "entropy", "--samples", "5"]) == 0
    assert not (tmp_path / "test.db").exists()


def test_analysing_again_replaces_what_was_there(tmp_path: Path, directory: RunDirectory) -> None:
    for samples in ("5", "50"):
        assert run(["analyze", directory.id, "diversity", "--samples", samples]) == 0
    kept = json.loads((directory.path / "analysis" / "diversity.json").read_text())
    assert kept["samples"] == 50
    assert rows(tmp_path / "test.db")["diversity/mean"] == kept["scalars"]["mean"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"scalars": {"mean": "high"}}', '{"scalars": 3}'])
def test_a_damaged_analysis_is_left_out_and_the_result_stands(directory: RunDirectory, content: str) -> None:
    (directory.path / "analysis").mkdir()
    (directory.path / "analysis" / "entropy.json").write_text(content)
    (directory.path / "analysis" / "sparsity.json").write_text('{"scalars": {"mean": 1.5, "none": null}}')
    found = snapshot(directory)
    assert found.state == "succeeded"
    names = {name: value for name, step, value in found.metrics if step == -1}
    assert {"sparsity/mean": 1.5, "sparsity/none": None}.items() <= names.items()
    assert not any(name.startswith("entropy/") for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["zzzz", "entropy"], "trial 'zzzz': none in"),
        (["ID", "entrpy"], "unknown analysis 'entrpy': did you mean entropy"),
        (["ID", "entropy", "--samples", "99999"], "--samples 99999: expected 1 to"),
        (["ID", "entropy", "--split", "all"], "--split"),
        (["ID", "entropy", "--device", "tpu"], "unknown device 'tpu'"),
        (["ID", "entropy", "--samples", "2", "-o", "FILE"], "expected a folder to write to"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    tmp_path: Path, directory: RunDirectory, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "file").touch()
    places = {"ID": directory.id, "FILE": str(tmp_path / "file")}
    assert run(["analyze", *(places.get(argument, argument) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert len(err.splitlines()) == 1


def test_an_analysis_of_a_plug_in_runs_like_ours(
    tmp_path: Path, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of docs/analyses.md, which is to work as it stands there."""
    monkeypatch.setenv("DROPBENCH_PLUGINS", "")  # restored behind the test: --plugin sets it
    monkeypatch.setattr(ANALYSES, "_entries", dict(ANALYSES._entries))
    text = (Path(__file__).parents[2] / "docs" / "analyses.md").read_text(encoding="utf-8")
    (tmp_path / "first_key.py").write_text(text.split("```python\n")[1].split("```")[0], encoding="utf-8")
    arguments = ["analyze", directory.id, "first-key", "--samples", "20", "--plugin", str(tmp_path / "first_key.py")]
    assert run(arguments) == 0
    there = rows(tmp_path / "test.db")
    assert 0 < (there["first-key/encoder-self.1"] or 0) < 1


def test_help_names_every_analysis_without_loading_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "--help"]) == 0
    said = "".join(capsys.readouterr().out.split())
    assert all(kind in said for kind in ANALYSES)
