"""Opening a file of reference results, also a damaged one."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from db.reference.archive import SHIPPED
from db.reference.load import REFERENCE, open_reference
from harness.errors import InputError
from tests.docs.reference.given import small_file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return small_file(tmp_path)


def changed(file: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a member of the archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(content, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            new.writestr(member, change(data) if member == name else data)
    file.write_bytes(content.getvalue())


def test_the_shipped_file_is_valid_and_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SHIPPED.stat().st_size <= 3_000_000
    found = []
    for cache, location in (("path", str(SHIPPED)), ("name", REFERENCE)):  # only the first is validated
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
        with open_reference(location) as store:
            found.append(store.states())
    assert {row.state for row in found[0].values()} == {"succeeded"}
    assert found[0] == found[1]


def test_a_file_is_validated_once(file: Path, tmp_path: Path) -> None:
    with open_reference(str(file)) as store:
        ids = list(store.states())
    [cached] = (tmp_path / "cache/dropbench/reference").iterdir()
    before = cached.stat().st_mtime_ns
    with open_reference(str(file)) as store:
        assert list(store.states()) == ids
    assert cached.stat().st_mtime_ns == before
    cached.write_bytes(b"damaged")
    with open_reference(str(file)) as store:
        assert list(store.states()) == ids


def test_a_cache_that_cannot_be_written_is_no_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache/dropbench").write_text("a file")
    with open_reference(str(file)) as store:
        assert len(store.states()) == 4


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("trials.csv", lambda data: data.replace(b",1,,succeeded", b",7,,succeeded"), "seed are those of trial"),
        ("trials.csv", lambda data: data.replace(b"succeeded", b"queued"), "queued, but with final values"),
        ("trials.csv", lambda data: data.replace(b"succeeded", b"\x1b[2J"), "state = "),
        ("metrics.csv", lambda data: data.replace(b",-1,", b",5,"), "without final values"),
        ("metrics.csv", lambda data: data + b"ffffffffffff,test/accuracy,-1,1.0,\n", "expected one of trials.csv"),
        ("configs.csv", lambda data: data.replace(b"vit-digits", b"vit-cifar"), "seed are those of trial"),
        ("configs.csv", lambda data: data.replace(b"{", b"[" * 100_000), "trial '"),
        ("details.csv", lambda data: data.splitlines(keepends=True)[0], "no row in details.csv"),
        ("details.csv", lambda data: data.replace(b",[]", b",{}"), "expected a list of notes"),
        ("details.csv", lambda data: data.replace(b"380", b"many"), "steps = 'many'"),
        ("attempts.csv", lambda data: b"\xff" + data, "attempts.csv"),
    ],
)
def test_a_damaged_table_is_one_line(file: Path, name: str, change: Callable[[bytes], bytes], message: str) -> None:
    changed(file, name, change)
    with pytest.raises(InputError, match=message) as raised, open_reference(str(file)):
        pass
    assert str(raised.value).isprintable()
    assert str(raised.value).startswith(str(file))


def test_what_is_no_such_archive_is_one_line(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    bomb = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_LZMA) as new:
        for member in old.namelist():
            new.writestr(member, bytes(2**28 + 1) if member == "metrics.csv" else old.read(member))
    for damaged in (b"", b"hello", content[:-30], content[: len(content) // 2], bomb.getvalue()):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged, or no file of reference results"), open_reference(str(file)):
            pass
    with pytest.raises(InputError, match="no such file: expected `reference`"), open_reference(str(tmp_path / "no")):
        pass
    with pytest.raises(InputError), open_reference(str(tmp_path)):
        pass
