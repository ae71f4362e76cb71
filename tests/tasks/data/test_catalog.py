"""The catalogue: every registered set is complete, and knowing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.registry import load
from tasks.data import DATASETS, locate
from tasks.data.check import check

ALL = list(DATASETS)
TABLE_4 = {
    "conll2000": {"train": 211727, "test": 47377},
    "conll2003": {"train": 204567, "dev": 51578, "test": 46666},
    "ptb": {"train": 912344, "dev": 131768, "test": 129654},
}
TABLE_2 = {"cr": 3993, "trec": 5052, "subj": 10000, "mr": 10661, "ag-news": 127600, "yelp13": 335018}
OF_ANY_SIZE = ("enwiki", "humbi", "text")


def test_the_sets_of_the_papers_are_there() -> None:
    assert set(ALL) >= {*TABLE_2, "digits", "cifar10", "cifar100", "imagenet", "tiny-imagenet"}
    assert set(ALL) >= {*TABLE_4, "wnut17", "ud-ewt", "snli"}


@pytest.mark.parametrize("name", ALL)
def test_entry_is_complete(name: str) -> None:
    dataset = DATASETS.get(name)
    assert dataset.name == name
    assert dataset.help
    assert dataset.home.startswith("http")
    assert dataset.origin
    assert dataset.licence
    assert dataset.splits
    assert dataset.published or name in OF_ANY_SIZE
    assert {entry.split for entry in dataset.published} <= {"train", "dev", "test", "all"}
    assert len(dataset.class_names) in (0, dataset.classes)
    for layout in dataset.layouts:
        assert layout.files
        assert callable(load(layout.reader))
    if dataset.synthetic:
        assert callable(load(dataset.synthetic))


@pytest.mark.parametrize("name", ALL)
def test_folders_and_names_stay_below_the_root(name: str) -> None:
    dataset = DATASETS.get(name)
    for part in (dataset.folder, *(file for layout in dataset.layouts for file in layout.files)):
        assert not part.startswith("/")
        assert ".." not in part.split("/")


def test_published_tokens_are_those_of_dropattention() -> None:
    for name, stated in TABLE_4.items():
        published = [entry for entry in DATASETS.get(name).published if entry.where == "DropAttention, Table 4"]
        assert {entry.split: entry.count for entry in published} == stated
        assert {entry.unit for entry in published} == {"tokens"}


@pytest.mark.parametrize("name", [name for name in ALL if f"{name}-synthetic" in DATASETS])
def test_every_published_size_can_be_compared(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DATASETS.get(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    twin = locate(f"{name}-synthetic")
    compared = check(replace(twin, name=name), decode=False).published
    assert len(compared) == len(dataset.published)
    assert all(0 < entry.found < entry.count for entry in compared)


@pytest.mark.parametrize(("name", "rows"), TABLE_2.items())
def test_published_numbers_are_those_of_dropattention(name: str, rows: int) -> None:
    stated = {entry.count for entry in DATASETS.get(name).published if entry.where == "DropAttention, Table 2"}
    assert stated == {rows}


def test_no_two_sets_share_a_folder() -> None:
    folders = [DATASETS.get(name).folder for name in ALL]
    assert len(set(folders)) == len(folders)


def test_a_synthetic_name_is_another_name_of_the_set() -> None:
    assert DATASETS.get("trec-synthetic") is DATASETS.get("trec")
    assert "digits-synthetic" not in DATASETS


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown data 'trek': did you mean trec"):
        DATASETS.get("trek")


def test_knowing_the_sets_imports_no_large_library() -> None:
    code = (
        "import sys, tasks.commands, tasks.data, tasks.data.check;"
        "print([name for name in ('torch', 'sklearn', 'pandas', 'numpy', 'PIL', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
