"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.files import synced_together, write_atomic


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
