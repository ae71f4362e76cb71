"""The fingerprint: it depends on the content only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.tasks.data.fingerprint import fingerprint
from tests.tasks.data.conftest import WriteImage, WriteSource


def of(folder: Path, *names: str) -> str:
    return fingerprint(folder, [folder / name for name in names])


@pytest.fixture
def tree(tmp_path: Path, write_image: WriteImage) -> Path:
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            for number in range(3):
                write_image(tmp_path / split / name / f"{number}.png", 40 * number)
    return tmp_path


def test_hex_digits_that_do_not_change(source: WriteSource) -> None:
    located = source("mr", {"rt-polarity.all": b"0 a\n1 b\n"})
    # A change here changes every trial's id: raise RULES and say so in the changelog.
    assert located.fingerprint() == "b84491d5b924db13"


def test_a_copy_elsewhere_at_another_time_is_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (first / "a").write_bytes(b"text")
    shutil.copytree(first, second)
    os.utime(second / "a", (1, 1))
    assert of(first, "a") == of(second, "a")
    (second / "b").write_bytes(b"text")
    assert of(second, "a", "b") == of(second, "b", "a") != of(first, "a") != of(second, "b")


@given(size=st.integers(1, 2**18), data=st.data())
def test_every_byte_of_a_file_counts(tmp_path_factory: pytest.TempPathFactory, size: int, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("byte")
    content = bytearray(size)
    (folder / "a").write_bytes(content)
    before = of(folder, "a")
    (folder / "a").write_bytes(content[: data.draw(st.integers(0, size - 1))])
    shorter = of(folder, "a")
    content[data.draw(st.integers(0, size - 1))] = 1
    (folder / "a").write_bytes(content)
    assert len({before, shorter, of(folder, "a")}) == 3


CHANGES: dict[str, Callable[[Path], object]] = {
    "an image renamed": lambda tree: (tree / "train/cat/1.png").rename(tree / "train/cat/7.png"),
    "an image less": lambda tree: (tree / "train/cat/1.png").unlink(),
    "a class renamed": lambda tree: (tree / "val/dog").rename(tree / "val/wolf"),
    "a class less": lambda tree: shutil.rmtree(tree / "val/dog"),
    "an image in another class": lambda tree: (tree / "train/dog/0.png").rename(tree / "train/cat/0.png"),
    "another image": lambda tree: shutil.copy(tree / "train/dog/1.png", tree / "train/dog/2.png"),
    "a hidden file": lambda tree: (tree / "train/cat/.DS_Store").write_bytes(b"x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_read_of_a_folder_counts(tree: Path, change: str) -> None:
    before = of(tree, "train", "val")
    CHANGES[change](tree)
    assert (of(tree, "train", "val") == before) == (change == "a hidden file")


def test_every_one_of_many_files_counts(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    paths = [tmp_path / "train" / f"{number:04d}.png" for number in range(70)]
    for path in paths:
        path.write_bytes(b"0")
    seen = {of(tmp_path, "train")}
    for path in paths:
        path.write_bytes(b"1")
        seen.add(of(tmp_path, "train"))
    assert len(seen) == len(paths) + 1
