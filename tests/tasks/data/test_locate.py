"""Location of the files of a data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import DATASETS, locate, parse_folders
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource

SNLI = {
    suffix: {f"snli_1.0_{split}.{suffix}": b"x" for split in ("train", "dev", "test")} for suffix in ("jsonl", "txt")
}


def test_below_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mr").mkdir()
    (tmp_path / "mr" / "rt-polarity.all").write_text("0 a\n")
    assert locate("mr", tmp_path).files == (tmp_path / "mr" / "rt-polarity.all",)
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path))
    located = locate("mr")
    assert located.folder == tmp_path / "mr"
    assert located.name == "mr"
    assert not located.synthetic


def test_a_missing_set_is_reported_with_its_files_and_source(tmp_path: Path) -> None:
    folder, home = tmp_path / "trec", DATASETS.get("trec").home
    message = rf"^data 'trec' not found.* TREC.train.all, TREC.test.all .*{folder}.*--data trec=PATH.*trec-synthetic"
    with one_line(message) as error:
        locate("trec", tmp_path)
    assert home in str(error.value)
    (folder / "TREC.train.all").mkdir(parents=True)  # which is no file
    with one_line("data 'trec' not found"):
        locate("trec", tmp_path)
    (folder / "TREC.test.all").write_text("0 a\n")
    with one_line(f"is incomplete: {folder} has TREC.test.all, but not TREC.train.all"):
        locate("trec", tmp_path)


@pytest.mark.parametrize(
    ("data", "name", "missing"),
    [
        ("trec", "TREC.train.all.gz", "not TREC.train.all"),
        ("trec", "TREC.train.all.zip", "not TREC.train.all"),
        ("imagenet", "train.tar", "expected train/, val/ in .*"),
    ],
)
def test_compressed_files_are_named(tmp_path: Path, data: str, name: str, missing: str) -> None:
    (tmp_path / "TREC.test.all").write_text("0 a\n")
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=f"{missing}: unpack {tmp_path / name}$"):
        locate(data, folders={data: tmp_path})


def test_a_folder_that_may_not_be_read_is_reported_as_missing(tmp_path: Path) -> None:
    closed, user = tmp_path / "closed", os.geteuid()
    (closed / "data").mkdir(parents=True)
    closed.chmod(0)
    try:
        if user == 0:  # who may read every folder
            os.seteuid(65534)
        with pytest.raises(InputError, match="data 'trec' not found"):
            locate("trec", folders={"trec": closed / "data"})
    finally:
        os.seteuid(user)
        closed.chmod(0o755)


def test_of_a_half_copied_set_the_nearest_layout_is_reported(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"snli_1.0_{split}.txt").write_bytes(b"x")
    with pytest.raises(InputError, match=r"has snli_1.0_train.txt, snli_1.0_dev.txt, but not snli_1.0_test.txt"):
        locate("snli", folders={"snli": tmp_path})


def test_both_layouts_are_found_and_the_archives_folders_too(tmp_path: Path, source: WriteSource) -> None:
    assert source("snli", {**SNLI["jsonl"], **SNLI["txt"]}).layout is DATASETS.get("snli").layouts[0]
    packed = tmp_path / "packed" / "snli_1.0"
    packed.mkdir(parents=True)
    for name, content in SNLI["txt"].items():
        (packed / name).write_bytes(content)
    located = locate("snli", folders={"snli": tmp_path / "packed"})
    assert located.folder == packed
    assert located.layout is DATASETS.get("snli").layouts[1]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("trec", "expected NAME=PATH"),
        ("trec=", "expected NAME=PATH"),
        ("trek=.", "did you mean trec"),
        ("trec=/no/such/folder", "/no/such/folder is not a folder"),
    ],
)
def test_parse_folders_refuses(tmp_path: Path, item: str, message: str) -> None:
    assert parse_folders([f"trec={tmp_path}", f"ag-news={tmp_path}"]) == {"trec": tmp_path, "ag-news": tmp_path}
    with pytest.raises(InputError, match=message):
        parse_folders([item])
