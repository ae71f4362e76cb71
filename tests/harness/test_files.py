"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dropbench.harness.errors import InputError
from dropbench.harness.files import (
    MAX_BYTES,
    MAX_LIBYAML_BYTES,
    read_bytes,
    read_json,
    read_yaml,
    synced_together,
    write_atomic,
)


def test_many_files_are_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    write_atomic(tmp_path / "alone", b"1")
    assert len(waited) == 1
    with synced_together(tmp_path):
        for number in range(5):
            write_atomic(tmp_path / str(number), b"1")
    assert len(waited) == 1
    assert [(tmp_path / str(number)).read_bytes() for number in range(5)] == [b"1"] * 5
    write_atomic(tmp_path / "again", b"1")
    assert len(waited) == 2
    assert not list(tmp_path.glob(".*"))


def test_after_an_error_each_file_is_waited_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    with pytest.raises(KeyError), synced_together(tmp_path):
        raise KeyError
    write_atomic(tmp_path / "alone", b"1")
    assert len(waited) == 1


def test_where_the_kernel_has_no_syncfs_all_disks_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr("ctypes.CDLL", lambda *rest, **more: object())
    monkeypatch.setattr(os, "sync", lambda: called.append("sync"))
    with synced_together(tmp_path):
        write_atomic(tmp_path / "file", b"1")
    assert called == ["sync"]


def test_a_folder_that_is_gone_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), synced_together(tmp_path / "gone"):
        pass


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "large"])
@pytest.mark.parametrize("read", [read_bytes, read_json, read_yaml])
def test_only_regular_files_of_a_limited_size_are_read(
    tmp_path: Path, kind: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "file.yaml"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match=r"file.yaml: (not a regular file|larger than|Is a directory)"):
        read(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "9" * 5000, "\udcff"])
def test_json_that_cannot_be_read_is_reported_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"file.json: not valid JSON") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, MAX_LIBYAML_BYTES])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: {b: 1, c: 2, b: 3}\n", "file.yaml:1: not valid YAML: second key 'b'"),
        ("rows: []\ncolumns: [{x: 1}, {x: 1}]\nrows: []\n", "file.yaml:3: not valid YAML: second key 'rows'"),
        ("a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: [*a, *a]\n", None),
        ("1: a\n'1': b\n", None),
    ],
)
def test_a_key_has_one_value(size: int, text: str, error: str | None, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text + "#" * size)
    if error is None:
        assert read_yaml(path) == yaml.safe_load(text)
        return
    with pytest.raises(InputError, match=error):
        read_yaml(path)


def test_a_missing_file_is_no_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "gone.json")
