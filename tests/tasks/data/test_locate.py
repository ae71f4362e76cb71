"""Location of the files of a data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import DATASETS, locate, parse_folders
from dropbench.tasks.data.locate import default_folder, nearest_layout

if TYPE_CHECKING:
    from tests.tasks.data.conftest import WriteSource

SNLI = {
    suffix: {f"snli_1.0_{split}.{suffix}": b"x" for split in ("train", "dev", "test")} for suffix in ("jsonl", "txt")
}


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_below_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mr").mkdir()
    (tmp_path / "mr" / "rt-polarity.all").write_text("0 a\n")
    assert locate("mr", tmp_path).files == (tmp_path / "mr" / "rt-polarity.all",)
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path))
    located = locate("mr")
    assert located.folder == tmp_path / "mr"
    assert located.name == "mr"
    assert not located.synthetic


def test_default_root_is_data_in_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DROPBENCH_DATA", raising=False)
    assert default_folder(DATASETS.get("ag-news")) == Path("data/ag_news")


def test_a_missing_set_is_reported_with_its_files_and_source(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        locate("trec", tmp_path)
    text = one_line(error)
    for part in (
        "data 'trec' not found",
        "TREC.train.all, TREC.test.all",
        str(tmp_path / "trec"),
        "--data trec=PATH",
        DATASETS.get("trec").home,
        "trec-synthetic",
    ):
        assert part in text


@pytest.mark.parametrize("name", ["TREC.train.all.gz", "TREC.train.all.zip"])
def test_compressed_files_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "TREC.test.all").write_text("0 a\n")
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=f"not TREC.train.all: unpack {tmp_path / name}$"):
        locate("trec", folders={"trec": tmp_path})


def test_an_archive_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.tar").write_bytes(b"x")
    with pytest.raises(InputError, match=f"expected train/, val/ in {tmp_path}: unpack {tmp_path / 'train.tar'}$"):
        locate("imagenet", folders={"imagenet": tmp_path})


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


def test_an_incomplete_set_is_distinguished_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "trec").mkdir()
    (tmp_path / "trec" / "TREC.test.all").write_text("0 a\n")
    with pytest.raises(InputError) as error:
        locate("trec", tmp_path)
    assert f"is incomplete: {tmp_path / 'trec'} has TREC.test.all, but not TREC.train.all" in one_line(error)


def test_of_a_half_copied_set_the_nearest_layout_is_reported(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"snli_1.0_{split}.txt").write_bytes(b"x")
    with pytest.raises(InputError, match=r"has snli_1.0_train.txt, snli_1.0_dev.txt, but not snli_1.0_test.txt"):
        locate("snli", folders={"snli": tmp_path})


def test_a_folder_in_place_of_a_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "rt-polarity.all").mkdir()
    with pytest.raises(InputError, match="not found"):
        locate("mr", folders={"mr": tmp_path})


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean cifar10"):
        locate("cifar11", tmp_path)


def test_both_layouts_are_found_and_the_archives_folders_too(tmp_path: Path, source: WriteSource) -> None:
    assert source("snli", SNLI["jsonl"]).layout is DATASETS.get("snli").layouts[0]
    packed = tmp_path / "packed" / "snli_1.0"
    packed.mkdir(parents=True)
    for name, content in SNLI["txt"].items():
        (packed / name).write_bytes(content)
    located = locate("snli", folders={"snli": tmp_path / "packed"})
    assert located.folder == packed
    assert located.layout is DATASETS.get("snli").layouts[1]


def test_the_first_complete_layout_wins(source: WriteSource) -> None:
    located = source("snli", {**SNLI["jsonl"], **SNLI["txt"]})
    assert located.layout is DATASETS.get("snli").layouts[0]


def test_a_mapping_is_for_its_own_name_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'mr' not found"):
        locate("mr", tmp_path, {"trec": tmp_path})


def test_digits_are_always_present(tmp_path: Path) -> None:
    assert locate("digits", tmp_path).files[0].is_file()


def test_the_state_of_a_folder(tmp_path: Path) -> None:
    dataset = DATASETS.get("trec")
    assert nearest_layout(dataset, tmp_path).state == "missing"
    (tmp_path / "TREC.train.all").touch()
    assert nearest_layout(dataset, tmp_path).state == "incomplete"
    (tmp_path / "TREC.test.all").touch()
    assert nearest_layout(dataset, tmp_path).state == "ready"


def test_parse_folders(tmp_path: Path) -> None:
    assert parse_folders([f"trec={tmp_path}", f"ag-news={tmp_path}"]) == {"trec": tmp_path, "ag-news": tmp_path}
    assert parse_folders([]) == {}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("trec", "expected NAME=PATH"),
        ("trec=", "expected NAME=PATH"),
        ("trek=.", "did you mean trec"),
        ("trec=/no/such/folder", "/no/such/folder is not a folder"),
    ],
)
def test_parse_folders_refuses(item: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_folders([item])
