"""The fingerprint: it depends on the content only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.tasks.data.fingerprint import fingerprint

if TYPE_CHECKING:
    from tests.tasks.data.conftest import WriteSource


def of(folder: Path, *names: str) -> str:
    return fingerprint(folder, [folder / name for name in names])


@pytest.fixture
def tree(tmp_path: Path, write_image: Callable[[Path, int], None]) -> Path:
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


def test_the_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    assert of(tmp_path, "a", "b") == of(tmp_path, "b", "a")


def test_names_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert of(tmp_path, "a") != of(tmp_path, "b")


@given(content=st.binary(min_size=1, max_size=300), data=st.data())
def test_a_subset_never_looks_like_the_full_set(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("subset")
    (folder / "a").write_bytes(content)
    full = of(folder, "a")
    (folder / "a").write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert of(folder, "a") != full


@given(size=st.integers(1, 2**18), data=st.data())
def test_every_byte_of_a_file_counts(tmp_path_factory: pytest.TempPathFactory, size: int, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("byte")
    content = bytearray(size)
    (folder / "a").write_bytes(content)
    before = of(folder, "a")
    content[data.draw(st.integers(0, size - 1))] = 1
    (folder / "a").write_bytes(content)
    assert of(folder, "a") != before


def test_image_folders_with_an_image_less_or_renamed_differ(tree: Path) -> None:
    fingerprints = {of(tree, "train", "val")}
    (tree / "train/cat/1.png").rename(tree / "train/cat/7.png")
    fingerprints.add(of(tree, "train", "val"))
    (tree / "train/cat/7.png").unlink()
    fingerprints.add(of(tree, "train", "val"))
    (tree / "val/dog").rename(tree / "val/wolf")
    fingerprints.add(of(tree, "train", "val"))
    shutil.rmtree(tree / "val/wolf")
    fingerprints.add(of(tree, "train", "val"))
    assert len(fingerprints) == 5


def test_an_image_in_another_class_differs(tree: Path) -> None:
    before = of(tree, "train")
    (tree / "train/cat/0.png").rename(tree / "train/dog/9.png")
    (tree / "train/dog/0.png").rename(tree / "train/cat/0.png")
    assert of(tree, "train") != before


def test_the_content_of_an_image_counts(tree: Path) -> None:
    before = of(tree, "train")
    (tree / "train/dog/2.png").write_bytes((tree / "train/dog/1.png").read_bytes())
    assert of(tree, "train") != before


def test_hidden_files_do_not_count(tree: Path) -> None:
    before = of(tree, "train")
    (tree / "train/cat/.DS_Store").write_bytes(b"x")
    assert of(tree, "train") == before


def test_every_one_of_many_images_counts(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for number in range(200):
        (tmp_path / "train" / f"{number:04d}.png").write_bytes(b"0")
    before = of(tmp_path, "train")
    for number in range(200):
        path = tmp_path / "train" / f"{number:04d}.png"
        path.write_bytes(b"1")
        assert of(tmp_path, "train") != before
        path.write_bytes(b"0")
    assert of(tmp_path, "train") == before


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone"):
        of(tmp_path, "gone")
