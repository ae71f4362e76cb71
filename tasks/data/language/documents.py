"""Language modeling data: running text in three splits, streamed in chunks.

A Wikipedia dump does not fit into memory, so text is read on access and never kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dropbench.harness.errors import InputError
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.read import Data
from dropbench.tasks.data.splits import SPLITS


@dataclass(frozen=True)
class TextChunk:
    """A chunk of running text, which ends at the end of a line unless the line is longer than a mebibyte.

    Attributes:
        rows: number of lines with text; 1 for a page of a Wikipedia dump.
        last: True for the last chunk of a document: a page, or the part of a file that belongs to a split.
    """

    split: Split
    text: str
    rows: int
    last: bool


@dataclass(frozen=True, eq=False)
class LanguageData(Data):
    """Running text: dev for model selection, test for the score.

    Attributes:
        chunks: reads the text from its beginning, in the order of the files; raises InputError for a damaged file.
        split_notes: how the splits were made.
        skipped: number of items of each kind that the last run of `chunks` left out.
    """

    kind: ClassVar[str] = "language-modelling"

    name: str
    chunks: Callable[[], Iterator[TextChunk]]
    split_notes: tuple[str, ...]
    skipped: Counter[str]

    @property
    def notes(self) -> tuple[str, ...]:
        """How the splits were made and, once the text has been read, what was left out."""
        return self.split_notes + tuple(f"left out: {kind}: {count:,}" for kind, count in sorted(self.skipped.items()))

    def rows(self) -> Mapping[str, int]:
        """Return the number of lines with text (pages of a Wikipedia dump) of each split; read all text."""
        return self._sizes[0]

    def tokens(self) -> Mapping[str, int]:
        """Return the number of words and line ends of each split, the unit of WikiText's sizes; read all text."""
        return self._sizes[1]

    @cached_property
    def _sizes(self) -> tuple[Counter[str], Counter[str]]:
        rows: Counter[str] = Counter(dict.fromkeys(SPLITS, 0))
        tokens: Counter[str] = Counter(dict.fromkeys(SPLITS, 0))
        for chunk in self.chunks():
            rows[chunk.split] += chunk.rows
            tokens[chunk.split] += len(chunk.text.split()) + chunk.text.count("\n")
        for split in SPLITS:
            if not rows[split]:
                expected = "too little to split into train, dev and test"
                raise InputError(f"data '{self.name}': no text for {split}: {expected}")
        return rows, tokens
