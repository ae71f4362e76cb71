"""``dropbench data list|check|fetch``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.errors import InputError
from tasks.commands import app
from tasks.data import DATASETS

ROWS = "".join(f"{number % 6} question {number}\n" for number in range(120))


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "trec").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def trec(places: Path) -> Path:
    folder = places / "data" / "trec"
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


def test_list_names_every_set_and_its_state(trec: Path) -> None:
    (trec.parent / "ag_news").mkdir()
    (trec.parent / "ag_news" / "train.csv").touch()
    rows = {row["name"]: row for row in run_json("list")}
    assert list(rows) == list(DATASETS)
    states = {name: row["state"] for name, row in rows.items()}
    assert (states["digits"], states["trec"], states["ag-news"], states["mr"]) == (
        "ready", "ready", "incomplete", "missing",
    )  # fmt: skip
    assert rows["trec"]["folder"] == str(trec)
    assert rows["trec"]["kind"] == "text-classification"
    shown = run("list")
    assert all(name in shown for name in DATASETS)
    assert "ready" in shown


def test_list_follows_a_mapping(trec: Path, places: Path) -> None:
    (places / "data" / "trec").rename(places / "elsewhere")
    assert {row["name"]: row["state"] for row in run_json("list")}["trec"] == "missing"
    mapped = run_json("list", "--data", f"trec={places / 'elsewhere'}")
    assert {row["name"]: row["state"] for row in mapped}["trec"] == "ready"


def test_check_tells_what_the_set_holds(trec: Path) -> None:
    found = run_json("check", "trec")
    assert found["rows"] == {"train": 108, "dev": 12, "test": 1}
    assert found["class_rows"]["test"]["description"] == 1
    assert found["files"] == ["TREC.train.all", "TREC.test.all"]
    assert len(found["fingerprint"]) == 12
    assert not found["synthetic"]
    train = {"split": "train", "count": 5452, "where": "Li and Roth (2002)", "unit": "rows", "found": 120}
    assert {**train, "with_left_out": False} in found["published"]
    assert found["tokens"] == {}
    assert "train: 120 rows, Li and Roth (2002) has 5,452" in found["differences"]
    assert any("dev is 10 %" in note for note in found["notes"])


def test_check_for_people(trec: Path) -> None:
    shown = run("check", "trec")
    assert "train   108        6              18             18" in shown
    assert "fingerprint " in shown
    assert "differs: all: 121 rows, DropAttention, Table 2 has 5,052" in shown


def test_check_of_the_full_set_finds_no_difference() -> None:
    assert run_json("check", "digits")["differences"] == []


def test_check_of_a_tagged_set_counts_tokens(places: Path) -> None:
    folder = places / "data" / "conll2000"
    folder.mkdir()
    sentence = "".join(f"word NN B-{number:02d}\n" for number in range(40))
    (folder / "train.txt").write_text("\n".join([sentence] * 30))
    (folder / "test.txt").write_text(sentence)
    found = run_json("check", "conll2000")
    assert found["rows"] == {"train": 27, "dev": 3, "test": 1}
    assert found["tokens"] == {"train": 1080, "dev": 120, "test": 40}
    assert found["class_rows"]["dev"]["B-00"] == 3
    assert "train: 1,200 tokens, DropAttention, Table 4 has 211,727" in found["differences"]
    assert "40 classes, published: 23" in found["differences"]
    shown = run("check", "conll2000")
    assert "train    27   1,080       40              27             27" in shown
    assert "40 classes: B-00, B-01, B-02," in shown
    assert "B-12" not in shown
    assert "differs: test: 40 tokens, DropAttention, Table 4 has 47,377" in shown


def test_check_of_what_is_published_with_rows_that_are_left_out(places: Path) -> None:
    folder = places / "data" / "snli"
    folder.mkdir()
    rows = [{"gold_label": label, "sentence1": "a", "sentence2": "b"} for label in ("neutral", "-", "-")]
    for split in ("train", "dev", "test"):
        (folder / f"snli_1.0_{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = run_json("check", "snli")
    assert found["rows"]["dev"] == 1
    assert "dev: 3 rows, those left out among them, Bowman et al. (2015) has 10,000" in found["differences"]
    assert "10,000 dev (Bowman et al. (2015), with those that are left out here)" in run("fetch", "snli")


def test_check_of_a_set_without_classes() -> None:
    found = run_json("check", "wikitext-2-synthetic")
    assert found["classes"] == []
    assert found["tokens"]["test"] > 0
    shown = run("check", "wikitext-2-synthetic")
    assert "classes" not in shown
    header, row = (line.split() for line in shown.splitlines()[1:3])
    assert header == ["split", "rows", "tokens"]
    assert row == ["train", f"{found['rows']['train']:,}", f"{found['tokens']['train']:,}"]


def test_check_of_a_generated_set_is_not_compared_with_published_numbers() -> None:
    found = run_json("check", "yelp13-synthetic")
    assert found["synthetic"]
    assert found["name"] == "yelp13-synthetic"
    assert found["published"] == []
    assert found["differences"] == []


def test_check_decodes_images_unless_told_not_to() -> None:
    folder = Path(run_json("check", "imagenet-synthetic")["folder"])
    damaged = next((folder / "val").rglob("*.JPEG"))
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(InputError, match=damaged.name):
        run("check", "imagenet-synthetic")
    assert run_json("check", "imagenet-synthetic", "--quick")["rows"]["test"] == 25


def test_check_says_when_classes_are_fewer_than_published(places: Path) -> None:
    folder = Path(run_json("check", "imagenet-synthetic")["folder"])
    found = run_json("check", "imagenet", "--data", f"imagenet={folder}")
    assert "5 classes, published: 1000" in found["differences"]


def test_check_of_a_damaged_line_has_its_number(trec: Path) -> None:
    (trec / "TREC.train.all").write_text(ROWS + "nonsense\n")
    with pytest.raises(InputError, match=r"TREC\.train\.all:121: label 'nonsense'"):
        run("check", "trec")


def test_check_of_what_is_not_there() -> None:
    with pytest.raises(InputError, match=r"data 'mr' is not there: expected rt-polarity\.all in"):
        run("check", "mr")
    with pytest.raises(InputError, match="did you mean digits"):
        run("check", "digit")
    with pytest.raises(InputError, match="expected NAME=PATH"):
        run("check", "mr", "--data", "mr")


@pytest.mark.parametrize("name", [*DATASETS, "trec-synthetic"])
def test_fetch_tells_the_way_to_every_set(name: str, places: Path) -> None:
    told = run("fetch", name)
    dataset = DATASETS.get(name)
    if name.endswith("-synthetic") or dataset.package:
        assert "nothing to fetch" in told
        return
    assert dataset.home in told
    assert dataset.licence in told
    assert str(places / "data" / dataset.folder) in told
    assert f"dropbench data check {name}" in told
    for layout in dataset.layouts:
        assert ", ".join(layout.files) in told


def test_fetch_of_an_unknown_name() -> None:
    with pytest.raises(InputError, match="unknown data 'imagnet': did you mean imagenet"):
        run("fetch", "imagnet")
