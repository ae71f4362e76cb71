"""Reader of the output of fairseq-preprocess: a dictionary of each language, and token ids in memory-mapped files.

An index file ``*.idx`` consists of the nine bytes MMIDIDX and two zeros, the version 1 (64 bits), a code for the dtype
(8 bits), the number of sentences (64 bits), then the lengths of all sentences (32 bits each) and their offsets in the
``*.bin`` file (64 bits each); all little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import SPLITS
from dropbench.tasks.data.translation.parallel import TranslationData

FAIRSEQ_SPLITS = {"train": "train", "dev": "valid", "test": "test"}
"""fairseq's names of the splits."""
MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQ")
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}
UNK_INDEX = 3


@dataclass(frozen=True)
class BinarizedText:
    """The sentences of one language of one split, in the files `prefix` plus ``.bin`` and ``.idx``."""

    prefix: Path

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """Length of each sentence in tokens, (N,); raises InputError if the two files do not match."""
        return self._index[1]

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """Token ids of all sentences, concatenated."""
        return np.memmap(f"{self.prefix}.bin", dtype=self._index[0], mode="r")

    @cached_property
    def _index(self) -> tuple[str, NDArray[np.int32]]:
        path = Path(f"{self.prefix}.idx")
        try:
            content = path.read_bytes()
            size = Path(f"{self.prefix}.bin").stat().st_size
        except OSError as error:
            raise InputError(f"{error.filename}: {error.strerror}") from None
        if len(content) < HEADER.size or not content.startswith(MAGIC):
            raise InputError(f"{path}: no mmap index of fairseq: run `fairseq-preprocess --dataset-impl mmap`")
        _, version, code, count = HEADER.unpack_from(content)
        if version != 1 or code not in TYPES:
            raise InputError(f"{path}: version {version}, dtype {code}: expected version 1 and an integer dtype")
        if len(content) != HEADER.size + 12 * count:
            raise InputError(
                f"{path}: {len(content):,} bytes for {count:,} sentences: truncated or modified; copy it again"
            )
        sizes = np.frombuffer(content, "<i4", count, HEADER.size)
        starts = np.frombuffer(content, "<i8", count, HEADER.size + 4 * count)
        width = np.dtype(TYPES[code]).itemsize
        ends = np.cumsum(sizes, dtype=np.int64) * width
        if not count or sizes.min() < 1 or ends[-1] != size or not np.array_equal(starts[1:], ends[:-1]) or starts[0]:
            raise InputError(f"{path}: does not match the {size:,} bytes of {self.prefix.name}.bin: copy both again")
        return TYPES[code], sizes

    def check(self, num_symbols: int) -> None:
        """Raise InputError unless every token is in a dictionary of that size."""
        highest, lowest = int(self.tokens.max()), int(self.tokens.min())
        if lowest < 0 or highest >= num_symbols:
            token = highest if highest >= num_symbols else lowest
            raise InputError(f"{self.prefix}.bin: token {token}: expected 0 to {num_symbols - 1}, as in its dictionary")


@dataclass(frozen=True)
class BinarizedPairs(TranslationData):
    """A binarized folder."""

    folder: Path

    def rows(self) -> dict[str, int]:
        """Return the number of pairs of each split."""
        counts: dict[str, int] = {}
        for split in SPLITS:
            first, second = (self.sentences(split, language) for language in (self.source, self.target))
            if len(first.sizes) != len(second.sizes):
                sizes = " and ".join(f"{len(side.sizes):,} in {side.prefix.name}" for side in (first, second))
                raise InputError(f"{self.folder}: sentences: {sizes}: expected the same number in both")
            counts[split] = len(first.sizes)
        return counts

    def sentences(self, split: str, language: str) -> BinarizedText:
        """Return the sentences of one language of a split."""
        return BinarizedText(self.folder / f"{FAIRSEQ_SPLITS[split]}.{self.source}-{self.target}.{language}")

    def verify(self, progress: Callable[[], None]) -> None:
        """Raise InputError unless every token is in its dictionary."""
        for split, count in self.rows().items():
            for language in (self.source, self.target):
                self.sentences(split, language).check(count_symbols(self.folder / f"dict.{language}.txt"))
            for _ in range(count):
                progress()


def read(source: Source) -> BinarizedPairs:
    """Return a binarized folder; its file names give the languages."""
    pair = next(file.name for file in source.files if file.name.startswith("train.")).split(".")[1]
    first, second = pair.split("-")
    return BinarizedPairs(source.name, first, second, source.folder)


def count_symbols(path: Path) -> int:
    """Return the size of a dictionary, with fairseq's special symbols; raise InputError if fairseq cannot read it."""
    try:
        return len(Dictionary.load(str(path)))
    except Exception as error:  # fairseq raises this class, too
        raise InputError(f"{path}: {' '.join(str(error).split())[:200]}") from None
