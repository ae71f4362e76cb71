"""Text files as they are: WikiText's three, or any. UTF-8, read in pieces, parted at ends of lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from harness.errors import InputError
from tasks.data.language import LanguageData, Piece, Split

if TYPE_CHECKING:
    from tasks.data.locate import Source

BLOCK = 1 << 20
Shares = Sequence[tuple[Split, int]]
"""The parts of a file, from its beginning, in percent of its bytes."""

PARTED: Shares = (("train", 90), ("dev", 5), ("test", 5))


def read_files(source: Source) -> LanguageData:
    """Every file parted into train, dev and test, in this order.

    Raises:
        InputError: while it is read: a file is empty, or not in UTF-8; the message has file and line.
    """
    parts = [(path, PARTED) for path in source.files]
    return _data(source, parts, "of each file the first 90 % are train, the next 5 % dev, the last 5 % test")


def read_wikitext(source: Source) -> LanguageData:
    """WikiText as published: a file a split; see `read_files` for what is raised."""
    train, valid, test = source.files
    parts: list[tuple[Path, Shares]] = [(train, (("train", 100),)), (valid, (("dev", 100),)), (test, (("test", 100),))]
    return _data(source, parts)


def read_wikitext_without_train(source: Source) -> LanguageData:
    """WikiText where the train file is not there: test stays what it is; see `read_files` for what is raised."""
    valid, test = source.files
    parts: list[tuple[Path, Shares]] = [(valid, (("train", 90), ("dev", 10))), (test, (("test", 100),))]
    told = f"wiki.train.raw is not there: the first 90 % of {valid.name} are train, the rest dev; test as published"
    return _data(source, parts, told)


def _data(source: Source, parts: Sequence[tuple[Path, Shares]], *told: str) -> LanguageData:
    def pieces() -> Iterator[Piece]:
        for path, shares in parts:
            yield from file_pieces(path, shares)

    return LanguageData(source.name, pieces, told, Counter())


def file_pieces(path: Path, shares: Shares) -> Iterator[Piece]:
    """The text of a file, without a byte order mark, a line feed behind every line.

    Args:
        path: a file in UTF-8.
        shares: the splits that its parts belong to; a part ends with the line in which its share is reached.

    Raises:
        InputError: the file cannot be read, is empty, has zero bytes or bytes that are no UTF-8.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if not size:
                raise InputError(f"{path}: the file is empty")
            line, start, share = 1, 0, 0
            for split, percent in shares:
                share += percent
                end = size if share == 100 else _next_boundary(file, size * share // 100, size)
                for block, last in _blocks(file, start, end):
                    text = _decoded(block, path, line)
                    line += block.count(b"\n")
                    rows = sum(1 for row in text.split("\n") if row.strip())
                    yield Piece(split, text, rows, last)
                start = end
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _blocks(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, bool]]:
    """The bytes from `start` to `end` in pieces, and which one is the last."""
    file.seek(start)
    rest = b""
    while start < end:
        block = file.read(min(BLOCK, end - start))
        if not block:
            raise OSError(0, "the file became shorter while it was read")
        start += len(block)
        rest += block
        cut = len(rest) if start == end else _last_boundary(rest)
        if cut:
            yield rest[:cut], start == end
            rest = rest[cut:]


def _next_boundary(file: BinaryIO, position: int, size: int) -> int:
    """The first place from `position` on where the text may be cut: behind a line, else before a space."""
    file.seek(position)
    block = file.read(BLOCK)
    line, space = block.find(b"\n"), block.find(b" ")
    if line >= 0:
        return position + line + 1
    if space >= 0:
        return position + space
    following = next((at for at, byte in enumerate(block) if not 0x80 <= byte < 0xC0), len(block))
    return min(size, position + following)


def _last_boundary(block: bytes) -> int:
    """The last place in a block where the text may be cut, else 0."""
    line, space = block.rfind(b"\n"), block.rfind(b" ")
    if line >= 0:
        return line + 1
    if space > 0:
        return space
    # Between two characters: continuation bytes of UTF-8 belong to the byte before them.
    return next((at for at in range(len(block) - 1, 0, -1) if not 0x80 <= block[at] < 0xC0), 0)


def _decoded(block: bytes, path: Path, line: int) -> str:
    """Text with line feeds alone; `line` is the number of the block's first line, for errors."""
    if line == 1:
        block = block.removeprefix(b"\xef\xbb\xbf")
    if (zero := block.find(b"\0")) >= 0:
        where = line + block.count(b"\n", 0, zero)
        raise InputError(f"{path}:{where}: a zero byte: expected utf-8 text (UTF-16, or a binary file?)")
    try:
        return block.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        where = line + block.count(b"\n", 0, error.start)
        raise InputError(f"{path}:{where}: byte 0x{block[error.start]:02x} is no utf-8: expected utf-8 text") from None
