"""Lines of text files from elsewhere, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular, read_bytes

GZIP, ZIP, BYTE_ORDER_MARK = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"
MAX_LINE = 2**26
"""In bytes; a small gzip file can have a line that is larger than the memory."""


def read_file(path: Path) -> bytes:
    """Return the content of a file; raise InputError if it cannot be read or is empty."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not content:
        raise InputError(f"{path}: the file is empty")
    return content


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a text file, without their ends (line feed, or carriage return and line feed).

    Only these end a line: the published latin-1 files contain characters (hex 85) at which `str.splitlines` would cut.
    A file that should be latin-1 but is valid UTF-8 is read as UTF-8, so that converted copies give the same texts.

    Raises:
        InputError: the file is missing, empty or binary, or a line is not in that encoding.
    """
    content = read_file(path).removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n")
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    # Empty lines at the end are cut, but not the white space of the last line with text.
    last_line_end = content.find(b"\n", len(content.rstrip()))
    if last_line_end >= 0:
        content = content[:last_line_end]
    if b"\0" not in content:
        with suppress(UnicodeDecodeError):
            return content.decode().split("\n")
    return decode_text(path, 1, content, encoding).split("\n")


def stream_lines(path: Path, *, gzipped: bool | None = None) -> Iterator[tuple[int, str]]:
    """Yield each line's number, from 1, and its text without its end, as `read_lines`, from a file of any size.

    Without `gzipped`, the first bytes of the file decide whether it is gzipped.

    Raises:
        InputError: the file is missing, empty, binary or truncated, or a line is not UTF-8.
    """
    number = 0
    try:
        with open_regular(path) as file:
            head = file.read(4)
        if head == ZIP:
            raise InputError(f"{path}: zip archive: expected a text file, plain or gzipped; unpack the archive")
        is_gzipped = head.startswith(GZIP) if gzipped is None else gzipped
        with gzip.open(path) if is_gzipped else open_regular(path) as file:
            for number, raw in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
                if len(raw) == MAX_LINE:
                    raise InputError(f"{path}:{number}: longer than {MAX_LINE:,} bytes: expected lines of text")
                line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                yield number, decode_text(path, number, line.rstrip(b"\r\n"))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}:{number + 1}: damaged gzip file ({error}): copy it again") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not number:
        raise InputError(f"{path}: the file is empty")


def decode_text(path: Path, line: int, content: bytes, encoding: str = "utf-8") -> str:
    """Return the text of a part of a file that starts at the line with number `line`.

    Raises:
        InputError: the part has a zero byte, or bytes that are not in the encoding; the message names the line.
    """
    if (zero_byte := content.find(b"\0")) >= 0:
        line += content.count(b"\n", 0, zero_byte)
        raise InputError(f"{path}:{line}: zero byte: expected {encoding} text, not UTF-16 or a binary file")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line += content.count(b"\n", 0, error.start)
        byte = f"byte 0x{content[error.start]:02x}"
        raise InputError(f"{path}:{line}: {byte} is not valid {encoding}: expected {encoding} text") from None


def single_spaces(text: str) -> str:
    """Return the text stripped, with every run of white space replaced by one space."""
    return " ".join(text.split())
