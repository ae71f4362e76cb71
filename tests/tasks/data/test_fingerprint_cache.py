"""The cache of fingerprints: what is unchanged is not read again, and nothing stale or damaged is returned."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import fingerprint as module
from dropbench.tasks.data.fingerprint import fingerprint
from tests.patience import PATIENCE

Read = Callable[[], list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of 70 files each, and a large file; time stamps are trusted at once."""
    monkeypatch.setattr(module, "TIMER_NS", 0)
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        for number in range(70):
            (tmp_path / split / f"{number}").write_bytes(b"0")
    (tmp_path / "large").write_bytes(bytes(200_000))
    return tmp_path


@pytest.fixture
def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """() → the names of the files that have been read since the last call."""
    names: list[str] = []
    content = module._content

    def recorded(advance: Callable[[int], None], path: str) -> str:
        names.append(str(Path(path).relative_to(folder)))
        return content(advance, path)

    def taken() -> list[str]:
        result = sorted(names)
        names.clear()
        return result

    monkeypatch.setattr(module, "_content", recorded)
    return taken


def of(folder: Path, *, trust_cache: bool = False) -> str:
    return fingerprint(folder, [folder / "train", folder / "val", folder / "large"], trust_cache=trust_cache)


def test_only_changed_folders_are_read_again(folder: Path, read: Read) -> None:
    first = of(folder)
    assert len(read()) == 141
    assert (of(folder), read()) == (first, [])
    (folder / "val/7").write_bytes(b"1")
    changed = of(folder)
    assert changed != first
    assert read() == sorted(f"val/{number}" for number in range(70))
    (folder / "val/7").write_bytes(b"0")
    assert of(folder) == first
    shutil.rmtree(folder / "val")
    (folder / "val").mkdir()
    assert of(folder) not in (first, changed)


def test_a_file_with_its_old_size_and_time_is_read_again(folder: Path) -> None:
    first = of(folder)
    status = (folder / "large").stat()
    with (folder / "large").open("r+b") as file:
        file.seek(70_000)
        file.write(b"1")
    os.utime(folder / "large", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert of(folder) != first


def test_fresh_files_are_read_again(folder: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another change within the resolution of time stamps could have the same ones."""
    monkeypatch.setattr(module, "TIMER_NS", 10**12)
    first = of(folder)
    read()
    assert (of(folder), len(read())) == (first, 141)


@pytest.mark.parametrize("damage", ["empty", "cut", "digit", "foreign", "folder"])
def test_a_damaged_cache_is_rebuilt(folder: Path, read: Read, cache: Path, damage: str) -> None:
    first = of(folder)
    (file,) = (path for path in (cache / "dropbench/fingerprints").iterdir() if path.suffix != ".lock")
    content = file.read_bytes()
    if damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        position = content.index(b'"fingerprint"') + 17
        digit = b"0" if content[position : position + 1] != b"0" else b"1"
        edited = content[:position] + digit + content[position + 1 :]
        file.write_bytes({"empty": b"", "cut": content[:-9], "digit": edited, "foreign": b"\xff\n[1]"}[damage])
    read()
    assert (of(folder), of(folder, trust_cache=True)) == (first, first)
    assert len(read()) == (282 if damage == "folder" else 141)
    assert damage == "folder" or file.read_bytes() == content


def test_trust_cache_examines_no_file(folder: Path, read: Read) -> None:
    assert of(folder, trust_cache=True) == of(folder)
    first = of(folder)
    (folder / "val/7").write_bytes(b"1")
    read()
    assert (of(folder, trust_cache=True), read()) == (first, [])
    assert of(folder) != first
    assert of(folder, trust_cache=True) == of(folder)


def test_a_set_of_very_many_files_is_examined_once_a_minute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_FILES", 141)
    first = of(folder)
    (folder / "val/7").write_bytes(b"1")
    assert of(folder) == first
    monkeypatch.setattr(module, "_recent", {})  # as in another process
    assert of(folder) == first
    monkeypatch.setattr(module, "EXAMINED_S", 0.0)
    assert of(folder) != first


def test_copies_of_a_large_set_are_read_once_each(folder: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of a cluster have copies on disks of their own, at the same path, and one cache."""
    monkeypatch.setattr(module, "LARGE", 1)
    sources, local = [folder / "train", folder / "val", folder / "large"], folder / "local"
    copies = [folder / "one", folder / "other"]
    for copy in copies:
        copy.mkdir()
        for source in sources:
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, copy / source.name)

    def of_node(copy: Path) -> tuple[str, int]:
        copy.rename(local)
        try:
            return fingerprint(local, [local / source.name for source in sources]), len(read())
        finally:
            local.rename(copy)

    (first, all_files), *starts = [of_node(copies[node]) for node in (0, 1, 0, 1, 0)]
    assert all_files == 141
    assert starts == [(first, 141), (first, 0), (first, 0), (first, 0)]
    (copies[1] / "val/7").write_bytes(b"1")
    assert of_node(copies[1])[0] != first
    assert of_node(copies[0]) == (first, 0)


def test_one_of_several_processes_examines_a_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_FILES", 141)
    context = multiprocessing.get_context("fork")
    count = context.Value("i", 0)
    content = module._content

    def counted(advance: Callable[[int], None], path: str) -> str:
        with count.get_lock():
            count.value += 1
        return content(advance, path)

    monkeypatch.setattr(module, "_content", counted)
    processes = [context.Process(target=of, args=(folder,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0] * 4
    assert count.value == 141


def test_a_pipe_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "val/pipe")
    with pytest.raises(InputError, match="val/pipe: expected a regular file"):
        of(folder)


def test_a_cache_that_cannot_be_written_is_none(folder: Path, cache: Path, read: Read) -> None:
    (cache / "dropbench").write_text("a file")
    assert of(folder) == of(folder)
    assert len(read()) == 282
