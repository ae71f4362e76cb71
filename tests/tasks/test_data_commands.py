"""Test ``dropbench data check|fetch``, and the states of data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.tasks.commands import app
from dropbench.tasks.data import DATASETS
from dropbench.tasks.data.check import list_datasets

ROWS = "".join(f"{number % 6} question {number}\n" for number in range(120))


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "trec").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def trec(folders: Path) -> Path:
    folder = folders / "data" / "trec"
    (folder / "TREC.train.all").write_text(ROWS)
    (folder / "TREC.test.all").write_text("0 What is an atom ?\n")
    return folder


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["data", *arguments])
    if result.exception is not None:
        raise result.exception
    assert result.stderr == ""
    return result.stdout


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_the_states_of_all_sets(trec: Path, folders: Path) -> None:
    (trec.parent / "ag_news").mkdir()
    (trec.parent / "ag_news" / "train.csv").touch()
    rows = {status.dataset.name: status.to_json() for status in list_datasets(Settings.from_environment())}
    assert list(rows) == list(DATASETS)
    states = {name: row["state"] for name, row in rows.items()}
    assert (states["digits"], states["trec"], states["ag-news"], states["mr"]) == (
        "ready", "ready", "incomplete", "missing",
    )  # fmt: skip
    assert (rows["trec"]["folder"], rows["trec"]["kind"]) == (str(trec), "text-classification")


def test_check_reports_the_content_of_the_set(trec: Path) -> None:
    content = run_json("check", "trec")
    assert content["rows"] == {"train": 108, "dev": 12, "test": 1}
    assert content["class_rows"]["test"]["description"] == 1
    assert content["files"] == ["TREC.train.all", "TREC.test.all"]
    assert len(content["fingerprint"]) == 16
    assert not content["synthetic"]
    train = {"split": "train", "count": 5452, "where": "Li and Roth (2002)", "unit": "rows", "found": 120}
    assert {**train, "with_left_out": False} in content["published"]
    assert content["tokens"] == {}
    assert "train: 120 rows, Li and Roth (2002) has 5,452" in content["differences"]
    assert any("dev is 10 %" in note for note in content["notes"])
    output = run("check", "trec")
    assert "train   108        6              18             18" in output
    assert "differs: all: 121 rows, DropAttention, Table 2 has 5,052" in output


def test_check_of_a_tagged_set_counts_tokens(folders: Path) -> None:
    folder = folders / "data" / "conll2000"
    folder.mkdir()
    sentence = "".join(f"word NN B-{number:02d}\n" for number in range(40))
    (folder / "train.txt").write_text("\n".join([sentence] * 30))
    (folder / "test.txt").write_text(sentence)
    content = run_json("check", "conll2000")
    assert content["rows"] == {"train": 27, "dev": 3, "test": 1}
    assert content["tokens"] == {"train": 1080, "dev": 120, "test": 40}
    assert "40 classes, published: 23" in content["differences"]
    output = run("check", "conll2000")
    assert "train    27   1,080       40              27             27" in output
    assert "40 classes: B-00, B-01, B-02," in output
    assert "B-12" not in output
    assert "differs: test: 40 tokens, DropAttention, Table 4 has 47,377" in output


def test_check_of_a_set_without_classes() -> None:
    content = run_json("check", "wikitext-2-synthetic")
    assert (content["synthetic"], content["classes"]) == (True, [])
    assert content["published"] == content["differences"] == []
    output = run("check", "wikitext-2-synthetic")
    assert "classes" not in output
    header, _, row = (line.split() for line in output.splitlines()[1:4])
    assert header == ["split", "rows", "tokens"]
    assert row == ["train", f"{content['rows']['train']:,}", f"{content['tokens']['train']:,}"]


def test_check_decodes_images_unless_quick() -> None:
    folder = Path(run_json("check", "imagenet-synthetic")["folder"])
    damaged = next((folder / "val").rglob("*.JPEG"))
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(InputError, match=damaged.name):
        run("check", "imagenet-synthetic")
    assert run_json("check", "imagenet-synthetic", "--quick")["rows"]["test"] == 25


def test_check_takes_the_folder_with_the_name(trec: Path, folders: Path) -> None:
    trec.rename(elsewhere := folders / "elsewhere")
    assert run_json("check", f"trec={elsewhere}")["folder"] == str(elsewhere)
    assert run_json("check", f"trec:mine={elsewhere}")["name"] == "trec:mine"
    with pytest.raises(InputError, match=r"--data trec=\./none: none is not a folder"):
        run("check", "trec=./none")


@pytest.mark.parametrize("name", [*DATASETS, "trec-synthetic"])
def test_fetch_prints_how_to_obtain_every_set(name: str, folders: Path) -> None:
    output = run("fetch", name)
    dataset = DATASETS.get(name)
    if name.endswith("-synthetic") or dataset.package:
        assert "nothing to fetch" in output
        return
    assert dataset.home in output
    assert dataset.licence in output
    assert str(folders / "data" / dataset.folder) in output
    assert f"dropbench data check {name}" in output
    for layout in dataset.layouts:
        assert ", ".join(layout.files) in output
    assert name != "snli" or "10,000 dev (Bowman et al. (2015), including rows excluded here)" in output
