"""What fairseq-preprocess writes: a dictionary of each language, and token numbers in memory-mapped files.

An index file ``*.idx`` is the nine bytes MMIDIDX and two zeros, the version 1 (64 bits), a code of the numbers' type
(8 bits), the count of sentences (64 bits), then for each sentence its length (32 bits) and for each where it begins in
the ``*.bin`` file beside it (64 bits); all little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.lines import read_lines
from tasks.data.parallel import SPLITS, TranslationData

if TYPE_CHECKING:
    from tasks.data.locate import Source

NAMES = {"train": "train", "dev": "valid", "test": "test"}
"""The splits as fairseq names them."""
MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQ")
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}
SPECIAL = 4
"""Symbols that every dictionary of fairseq has before those of its file: <s>, <pad>, </s>, <unk>."""
UNKNOWN = 3


@dataclass(frozen=True)
class Binarised:
    """The sentences of one language of one split, `prefix` with ``.bin`` and ``.idx`` behind."""

    prefix: Path

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """Length of each sentence in tokens, (N,); raises InputError where the files do not fit together."""
        return self._index[1]

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """All sentences one after the other."""
        return np.memmap(f"{self.prefix}.bin", dtype=self._index[0], mode="r")

    @cached_property
    def _index(self) -> tuple[str, NDArray[np.int32]]:
        path = Path(f"{self.prefix}.idx")
        try:
            content = path.read_bytes()
            held = Path(f"{self.prefix}.bin").stat().st_size
        except OSError as error:
            raise InputError(f"{error.filename}: {error.strerror}") from None
        if len(content) < HEADER.size or not content.startswith(MAGIC):
            raise InputError(f"{path}: no index of fairseq's mmap format (--dataset-impl mmap)")
        _, version, code, count = HEADER.unpack_from(content)
        if version != 1 or code not in TYPES:
            raise InputError(f"{path}: version {version}, type {code}: expected version 1 and a type of whole numbers")
        if len(content) != HEADER.size + 12 * count:
            raise InputError(f"{path}: {len(content):,} bytes for {count:,} sentences: cut short, or altered")
        sizes = np.frombuffer(content, "<i4", count, HEADER.size)
        starts = np.frombuffer(content, "<i8", count, HEADER.size + 4 * count)
        width = np.dtype(TYPES[code]).itemsize
        ends = np.cumsum(sizes, dtype=np.int64) * width
        if not count or sizes.min() < 1 or ends[-1] != held or not np.array_equal(starts[1:], ends[:-1]) or starts[0]:
            raise InputError(f"{path}: its sentences are not those of {self.prefix.name}.bin, which has {held:,} bytes")
        return TYPES[code], sizes

    def check(self, symbols: int) -> None:
        """See whether every token is in a dictionary of that size; raises InputError."""
        highest, lowest = int(self.tokens.max()), int(self.tokens.min())
        if lowest < 0 or highest >= symbols:
            wrong = highest if highest >= symbols else lowest
            raise InputError(f"{self.prefix}.bin: token {wrong}: expected 0 to {symbols - 1}, as its dictionary has")


@dataclass(frozen=True)
class BinarisedPairs(TranslationData):
    """A folder that is binarised already."""

    folder: Path

    def rows(self) -> dict[str, int]:
        """Number of pairs of each split."""
        counts = {}
        for split in SPLITS:
            sides = [self.sentences(split, language) for language in (self.source, self.target)]
            numbers = [len(side.sizes) for side in sides]
            if numbers[0] != numbers[1]:
                told = " and ".join(
                    f"{count:,} in {side.prefix.name}" for count, side in zip(numbers, sides, strict=True)
                )
                raise InputError(f"{self.folder}: sentences: {told}: expected as many in both")
            counts[split] = numbers[0]
        return counts

    def sentences(self, split: str, language: str) -> Binarised:
        """One language of a split."""
        return Binarised(self.folder / f"{NAMES[split]}.{self.source}-{self.target}.{language}")

    def verify(self, progress: Callable[[], None]) -> None:
        """Hold every token beside its dictionary."""
        for split, count in self.rows().items():
            for language in (self.source, self.target):
                self.sentences(split, language).check(symbols(self.folder / f"dict.{language}.txt"))
            for _ in range(count):
                progress()


def read(source: Source) -> BinarisedPairs:
    """A binarised folder; the files say the languages."""
    pair = next(file.name for file in source.files if file.name.startswith("train.")).split(".")[1]
    first, second = pair.split("-")
    return BinarisedPairs(source.name, first, second, source.folder)


def symbols(path: Path) -> int:
    """How many symbols a dictionary has, fairseq's own among them.

    Raises:
        InputError: a line is no symbol and its count, or a symbol is there twice.
    """
    seen = set()
    for number, line in enumerate(read_lines(path), 1):
        symbol, _, rest = line.rstrip().removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not symbol or not (rest.isascii() and rest.isdigit()):
            raise InputError(f"{path}:{number}: expected a symbol and its count, such as 'und@@ 315'")
        if symbol in seen and not line.rstrip().endswith("#fairseq:overwrite"):
            raise InputError(f"{path}:{number}: symbol '{symbol}' is there already")
        seen.add(symbol)
    return SPECIAL + len(seen)
