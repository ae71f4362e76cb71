"""Lines of large files, gzipped or plain."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data.lines import read_file, stream_lines
from tests.input_errors import one_line

# Separators at which str.splitlines would cut.
TEXT = "\ufefffirst\r\nsecond \x85 \u2028 line \n\nlast"
LINES = [(1, "first"), (2, "second \x85 \u2028 line "), (3, ""), (4, "last")]


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines_with_their_numbers(tmp_path: Path, pack: type[bytes]) -> None:
    path = written(tmp_path, pack(TEXT.encode()))
    assert list(stream_lines(path)) == LINES


def test_a_line_is_given_before_the_next_is_read(tmp_path: Path) -> None:
    lines = stream_lines(written(tmp_path, b"good\n\xff\n"))
    assert next(lines) == (1, "good")
    with pytest.raises(InputError, match="lines:2: byte 0xff is not valid utf-8"):
        next(lines)


PACKED = gzip.compress("".join(f"line {number * number % 7919}\n" for number in range(20_000)).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lines: the file is empty"),
        (gzip.compress(b"", mtime=0), "lines: the file is empty"),
        ("a\n".encode("utf-16"), "lines:1: zero byte: expected utf-8 text"),
        (b"a\n\0\n", "lines:2: zero byte"),
        (PACKED[: len(PACKED) // 2], r"lines:\d{3,}: damaged gzip file"),
        (PACKED[:9000] + bytes(100) + PACKED[9100:], r"lines:\d{3,}: damaged gzip file"),
        (b"\x1f\x8b\x08\x00 not packed at all", "lines:1: damaged gzip file"),
        (b"PK\x03\x04 glove.6B.zip", "lines: zip archive: expected a text file, plain or gzipped"),
    ],
)
def test_damage_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    with one_line(message):
        list(stream_lines(written(tmp_path, content)))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone: No such file"):
        list(stream_lines(tmp_path / "gone"))
    with pytest.raises(InputError, match="Is a directory"):
        list(stream_lines(tmp_path))


def test_a_line_longer_than_the_limit_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropbench.tasks.data.lines.MAX_LINE", 1000)
    content = gzip.compress(b"short\n" + b"x" * 10_000, mtime=0)
    with pytest.raises(InputError, match="lines:2: longer than 1,000 bytes"):
        list(stream_lines(written(tmp_path, content)))


@pytest.mark.parametrize("read", [read_file, lambda path: list(stream_lines(path))])
def test_a_device_is_not_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    (tmp_path / "lines").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="lines: not a regular file"):
        read(tmp_path / "lines")
