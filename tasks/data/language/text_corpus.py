"""Readers of plain UTF-8 text: WikiText's three files, or any others; read in chunks, split at line ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path
from typing import BinaryIO

from dropbench.harness.errors import InputError
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.language.documents import LanguageData, TextChunk
from dropbench.tasks.data.lines import BYTE_ORDER_MARK, decode_text
from dropbench.tasks.data.locate import Source

BLOCK = 1 << 20
Shares = Sequence[tuple[Split, int]]
"""Consecutive parts of a file, in percent of its bytes."""
THREE_PARTS: Shares = (("train", 90), ("dev", 5), ("test", 5))


def read_files(source: Source) -> LanguageData:
    """Return any text files, each split into train, dev and test, in this order.

    Raises:
        InputError: while the text is read: a file is empty, or not UTF-8; the message names file and line.
    """
    parts = [(path, THREE_PARTS) for path in source.files]
    return _data(source, parts, "of each file the first 90 % are train, the next 5 % dev, the last 5 % test")


def read_wikitext(source: Source) -> LanguageData:
    """Return WikiText; without the train file, most of the dev file replaces it. Its text raises as `read_files`."""
    *train, valid, test = source.files
    parts: list[tuple[Path, Shares]] = [(path, (("train", 100),)) for path in train]
    parts += [(valid, (("dev", 100),) if train else (("train", 90), ("dev", 10))), (test, (("test", 100),))]
    note = f"wiki.train.raw is not there: the first 90 % of {valid.name} are train, the rest dev; test as published"
    return _data(source, parts, *([] if train else [note]))


def _data(source: Source, parts: Sequence[tuple[Path, Shares]], *notes: str) -> LanguageData:
    return LanguageData(source.name, lambda: chain.from_iterable(starmap(file_chunks, parts)), notes, Counter())


def file_chunks(path: Path, shares: Shares) -> Iterator[TextChunk]:
    """Yield the text of a file in UTF-8, without a byte order mark, with line feeds as line ends.

    A part of the file ends with the line in which its share is reached.

    Raises:
        InputError: the file cannot be read, is empty, has zero bytes or bytes that are not UTF-8.
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
                    without_mark = block.removeprefix(BYTE_ORDER_MARK) if line == 1 else block
                    text = decode_text(path, line, without_mark).replace("\r\n", "\n")
                    line += block.count(b"\n")
                    rows = sum(1 for row in text.split("\n") if row.strip())
                    yield TextChunk(split, text, rows, last)
                start = end
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _blocks(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes from `start` to `end` in blocks, each with True if it is the last."""
    file.seek(start)
    rest = b""
    while start < end:
        block = file.read(min(BLOCK, end - start))
        if not block:
            raise OSError(0, "the file was truncated while it was read")
        start += len(block)
        rest += block
        cut = len(rest) if start == end else _last_boundary(rest)
        if cut:
            yield rest[:cut], start == end
            rest = rest[cut:]


def _next_boundary(file: BinaryIO, position: int, size: int) -> int:
    """Return the first position from `position` at which the text may be split: after a line, else before a space."""
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
    """Return the last position in a block at which the text may be split, else 0."""
    line, space = block.rfind(b"\n"), block.rfind(b" ")
    if line >= 0:
        return line + 1
    if space > 0:
        return space
    # Else split between characters: continuation bytes of UTF-8 belong to the byte before them.
    return next((at for at in range(len(block) - 1, 0, -1) if not 0x80 <= block[at] < 0xC0), 0)
