"""Stream the lines of a large text file, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from harness.errors import InputError
from tasks.data.lines import encoding_error, zero_byte_error

GZIP, ZIP, BYTE_ORDER_MARK = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"


def stream_lines(path: Path, *, gzipped: bool | None = None) -> Iterator[tuple[int, str]]:
    """Yield each line's number, from 1, and its text without its end (line feed, or carriage return and line feed).

    Only these end a line. Without `gzipped`, the first bytes of the file decide whether it is gzipped.

    Raises:
        InputError: the file is missing, empty, binary or truncated, or a line is not UTF-8.
    """
    number = 0
    try:
        with _open(path, gzipped) as file:
            for number, raw in enumerate(file, 1):
                line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                if b"\0" in line:
                    raise zero_byte_error(path, number)
                try:
                    yield number, line.rstrip(b"\r\n").decode()
                except UnicodeDecodeError as error:
                    raise encoding_error(path, number, line[error.start]) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}:{number + 1}: damaged gzip file ({error}): copy it again") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not number:
        raise InputError(f"{path}: the file is empty")


def _open(path: Path, gzipped: bool | None) -> BufferedIOBase:
    with path.open("rb") as file:
        head = file.read(4)
    if head == ZIP:
        raise InputError(f"{path}: zip archive: expected a text file, plain or gzipped; unpack the archive")
    if gzipped is None:
        gzipped = head.startswith(GZIP)
    return gzip.open(path) if gzipped else path.open("rb")
