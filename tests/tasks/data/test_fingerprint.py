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

from harness.errors import InputError
from tasks.data.fingerprint import BLOCK, fingerprint, partial_fingerprint

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


def test_twelve_hex_digits_that_do_not_change(source: WriteSource) -> None:
    located = source("mr", {"rt-polarity.all": b"0 a\n1 b\n"})
    # A change here changes every trial's id: raise RULES and say so in the changelog.
    assert located.fingerprint() == "1cef3e534094"


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


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK])
@pytest.mark.parametrize("where", ["head", "tail"])
def test_a_changed_byte_at_either_end_counts(tmp_path: Path, size: int, where: str) -> None:
    content = bytearray(size)
    (tmp_path / "a").write_bytes(content)
    before = of(tmp_path, "a")
    content[0 if where == "head" else -1] = 1
    (tmp_path / "a").write_bytes(content)
    assert of(tmp_path, "a") != before


@given(size=st.integers(1, 5 * BLOCK), data=st.data())
def test_every_byte_of_a_file_counts(tmp_path_factory: pytest.TempPathFactory, size: int, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("byte")
    content = bytearray(size)
    (folder / "a").write_bytes(content)
    before = of(folder, "a")
    content[data.draw(st.integers(0, size - 1))] = 1
    (folder / "a").write_bytes(content)
    assert of(folder, "a") != before


@pytest.mark.parametrize(
    ("size", "images", "covered"), [(2 * BLOCK, 64, True), (2 * BLOCK + 1, 1, False), (1, 65, False)]
)
def test_what_version_0_1_read_completely_keeps_its_fingerprint(
    tmp_path: Path, size: int, images: int, covered: bool
) -> None:
    (tmp_path / "train").mkdir()
    for number in range(images):
        (tmp_path / "train" / f"{number}.png").write_bytes(bytes(size // images))
    (tmp_path / "a").write_bytes(bytes(size))
    old = partial_fingerprint(tmp_path, [tmp_path / "train", tmp_path / "a"])
    new = of(tmp_path, "train", "a")
    assert (new == old, len(old), len(new)) == (covered, 12, 12 if covered else 16)


def test_large_files_keep_their_fingerprints(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 1024)
    # A change here changes every trial's id, too; the second is that of version 0.1.
    assert (of(tmp_path, "a"), partial_fingerprint(tmp_path, [tmp_path / "a"])) == ("7ec2fd4a700f007e", "849dcde2ba9e")


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
