"""Lines of a text file that somebody else wrote."""

from __future__ import annotations

from pathlib import Path

from harness.errors import InputError


def read_file(path: Path) -> bytes:
    """The content of a file that is not empty.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not content:
        raise InputError(f"{path}: the file is empty")
    return content


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a text file, without their ends (line feed, or carriage return and line feed).

    Only these end a line: the published latin-1 files contain characters (hex 85) at which `str.splitlines` would cut.
    A file that should be latin-1 but is valid UTF-8 is read as UTF-8, so that converted copies give the same texts.

    Raises:
        InputError: the file is missing, empty or binary, or a line is not in that encoding.
    """
    content = read_file(path).removeprefix(b"\xef\xbb\xbf")
    lines = content.replace(b"\r\n", b"\n").split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{path}: the file is empty")
    if b"\0" in content:
        number = next(number for number, line in enumerate(lines, 1) if b"\0" in line)
        raise InputError(f"{path}:{number}: a zero byte: expected {encoding} text (UTF-16, or a binary file?)")
    if encoding == "latin-1":
        encoding = "utf-8" if _is_utf8(content) else encoding
    decoded = []
    for number, line in enumerate(lines, 1):
        try:
            decoded.append(line.decode(encoding))
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise InputError(f"{path}:{number}: byte 0x{byte:02x} is no {encoding}: expected {encoding} text") from None
    return decoded


def single_spaces(text: str) -> str:
    """The text with every run of white space as one space, and none at its ends."""
    return " ".join(text.split())


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
