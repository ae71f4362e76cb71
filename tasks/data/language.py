"""What the readers of language modelling sets return: running text in three splits, piece by piece.

A Wikipedia dump does not fit into memory, so that nothing is read before it is asked for, and nothing is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from harness.errors import InputError

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class Piece:
    """A piece of running text, cut where a line ends wherever there is a line end within a mebibyte.

    Attributes:
        rows: lines that hold text; of a Wikipedia dump one, a page.
        last: whether a document ends with it: a file's part of a split, a page.
    """

    split: Split
    text: str
    rows: int
    last: bool


@dataclass(frozen=True, eq=False)
class LanguageData:
    """Running text: model selection on dev, the score on test.

    Attributes:
        name: of the data set.
        pieces: reads the text from its beginning, train, dev and test as they come; raises InputError for damage.
        told: how the splits were made.
        skipped: what `pieces` left out when it last came to the end: what → how often.
    """

    kind: ClassVar[str] = "language-modelling"

    name: str
    pieces: Callable[[], Iterator[Piece]]
    told: tuple[str, ...]
    skipped: Counter[str]

    @property
    def classes(self) -> tuple[str, ...]:
        """None: every token is one."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """How the splits were made, and, when the text has been read, what was left out."""
        return self.told + tuple(f"left out: {what}: {count:,}" for what, count in sorted(self.skipped.items()))

    def rows(self) -> Mapping[str, int]:
        """Number of lines with text (of a Wikipedia dump: of pages) of each split; reads all of it."""
        return self._sizes[0]

    def tokens(self) -> Mapping[str, int]:
        """Number of words and line ends of each split, as WikiText's sizes are published; reads all of it."""
        return self._sizes[1]

    def class_rows(self) -> Mapping[str, Mapping[str, int]]:
        """Empty."""
        return {}

    def verify(self, progress: Callable[[], None]) -> None:
        """Nothing is left to be read behind `rows`."""

    @cached_property
    def _sizes(self) -> tuple[Counter[str], Counter[str]]:
        rows: Counter[str] = Counter(dict.fromkeys(SPLITS, 0))
        tokens: Counter[str] = Counter(dict.fromkeys(SPLITS, 0))
        for piece in self.pieces():
            rows[piece.split] += piece.rows
            tokens[piece.split] += len(piece.text.split()) + piece.text.count("\n")
        for split in SPLITS:
            if not rows[split]:
                raise InputError(f"data '{self.name}': no text for {split}: too little to be parted")
        return rows, tokens
