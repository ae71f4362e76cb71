"""Lines of a large text file, one after the other, packed with gzip or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from harness.errors import InputError

GZIP, ZIP, MARK = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"


def stream_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line's number, from 1, and its text without its end (line feed, or carriage return and line feed).

    Only these end a line. Whether the file is packed is seen from its first bytes, not from its name.

    Raises:
        InputError: the file is missing, empty, binary or cut short, or a line is no UTF-8.
    """
    number = 0
    try:
        with _opened(path) as file:
            for number, raw in enumerate(file, 1):
                line = raw.removeprefix(MARK) if number == 1 else raw
                if b"\0" in line:
                    raise InputError(f"{path}:{number}: a zero byte: expected utf-8 text (UTF-16, or a binary file?)")
                try:
                    yield number, line.rstrip(b"\r\n").decode()
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    raise InputError(f"{path}:{number}: byte 0x{byte:02x} is no utf-8: expected utf-8 text") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}:{number + 1}: the packed file is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not number:
        raise InputError(f"{path}: the file is empty")


def _opened(path: Path) -> BufferedIOBase:
    with path.open("rb") as file:
        head = file.read(4)
    if head == ZIP:
        raise InputError(f"{path}: a zip archive: expected text, packed with gzip or not")
    return gzip.open(path) if head.startswith(GZIP) else path.open("rb")
