"""Lines of text files from elsewhere, with errors that name the file and the line."""

from __future__ import annotations

from pathlib import Path

from harness.errors import InputError


def read_file(path: Path) -> bytes:
    """Return the content of a file.

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
    """Return the lines of a text file, without their ends (line feed, or carriage return and line feed).

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
        raise zero_byte_error(path, next(number for number, line in enumerate(lines, 1) if b"\0" in line), encoding)
    if encoding == "latin-1":
        encoding = "utf-8" if _is_utf8(content) else encoding
    decoded = []
    for number, line in enumerate(lines, 1):
        try:
            decoded.append(line.decode(encoding))
        except UnicodeDecodeError as error:
            raise encoding_error(path, number, line[error.start], encoding) from None
    return decoded


def single_spaces(text: str) -> str:
    """Return the text stripped, with every run of white space replaced by one space."""
    return " ".join(text.split())


def zero_byte_error(path: Path, number: int, encoding: str = "utf-8") -> InputError:
    """Return the error for a line with a zero byte."""
    return InputError(f"{path}:{number}: zero byte: expected {encoding} text, not UTF-16 or a binary file")


def encoding_error(path: Path, number: int, byte: int, encoding: str = "utf-8") -> InputError:
    """Return the error for a line with a byte that the encoding does not allow."""
    return InputError(f"{path}:{number}: byte 0x{byte:02x} is not valid {encoding}: expected {encoding} text")


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
