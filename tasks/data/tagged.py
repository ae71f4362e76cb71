"""What the readers of tagged sets return: sentences with one tag a word, in three splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from harness.errors import InputError
from tasks.data.classification import Rows
from tasks.data.dataset import Unit
from tasks.data.splits import SPLIT_SEED, stratified

TaggedSentence = tuple[tuple[str, ...], tuple[str, ...]]
"""The words of a sentence and as many tags."""
Scored = Literal["spans", "tokens"]


@dataclass(frozen=True, eq=False)
class TaggedSplit:
    """Sentences, none empty.

    Attributes:
        words: the words of each sentence.
        tags: the tags of each sentence, one a word.
        columns: what else the files give for every word, by name, such as "pos" and "chunk"; shaped as `words`.
    """

    words: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[str, ...], ...]
    columns: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, row: int) -> TaggedSentence:
        return self.words[row], self.tags[row]

    def tokens(self) -> int:
        """Number of words."""
        return sum(map(len, self.words))

    def take(self, rows: Rows) -> TaggedSplit:
        """The sentences of those numbers, in that order."""
        return TaggedSplit(
            tuple(self.words[row] for row in rows),
            tuple(self.tags[row] for row in rows),
            {name: tuple(values[row] for row in rows) for name, values in self.columns.items()},
        )


@dataclass(frozen=True, eq=False)
class TaggedData:
    """A tagged set: model selection on dev, the score on test.

    Attributes:
        classes: all tags of the three splits, sorted; those of spans in BIO, whatever scheme the files have.
        notes: what a reader of results should know: how the splits were made, what was left out.
        scored: "spans": F1 of the spans that the tags mark; "tokens": the share of words with the right tag.
        left_out: what the files have and the splits have not: unit → split → number.

    Raises:
        InputError: a split has no sentences.
    """

    kind: ClassVar[str] = "sequence-labelling"

    name: str
    classes: tuple[str, ...]
    train: TaggedSplit
    dev: TaggedSplit
    test: TaggedSplit
    notes: tuple[str, ...]
    scored: Scored
    left_out: Mapping[Unit, Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rows in self.rows().items():
            if not rows:
                raise InputError(
                    f"data '{self.name}': no sentences for {name}: too few to be parted into train, dev and test"
                )

    def splits(self) -> dict[str, TaggedSplit]:
        """The three splits by name."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def rows(self) -> dict[str, int]:
        """Number of sentences of each split."""
        return {name: len(split) for name, split in self.splits().items()}

    def tokens(self) -> dict[str, int]:
        """Number of words of each split."""
        return {name: split.tokens() for name, split in self.splits().items()}

    def class_rows(self) -> dict[str, dict[str, int]]:
        """Number of words with each tag in each split."""
        counts = {name: Counter(tag for tags in split.tags for tag in tags) for name, split in self.splits().items()}
        return {name: {tag: found[tag] for tag in self.classes} for name, found in counts.items()}

    def verify(self, progress: Callable[[], None]) -> None:
        """Nothing is put off."""


def tags_of(*splits: TaggedSplit) -> tuple[str, ...]:
    """All tags of some splits, sorted."""
    return tuple(sorted({tag for split in splits for tags in split.tags for tag in tags}))


def carve_sentences(train: TaggedSplit) -> tuple[TaggedSplit, TaggedSplit]:
    """Train and dev from a set that was published without dev: 90 % and 10 % of the sentences."""
    kept, dev = stratified(np.zeros(len(train), np.int64), (90, 10))
    return train.take(kept), train.take(dev)


def noted_sentences(percents: str) -> str:
    """The note that goes with a split made here; a sentence has no class, so nothing is stratified."""
    return f"{percents} (seed {SPLIT_SEED})"
