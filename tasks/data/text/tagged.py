"""Tagged data: sentences with one tag per word, in three splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from dropbench.tasks.data.classification import RowSplit
from dropbench.tasks.data.dataset import Unit
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import ThreeSplits

Scored = Literal["spans", "tokens"]


@dataclass(frozen=True, eq=False)
class TaggedSplit(RowSplit):
    """Sentences, none empty.

    Attributes:
        words: the words of each sentence.
        tags: the tags of each sentence, one per word.
        columns: other labels of every word by name, such as "pos" and "chunk"; shaped as `words`.
    """

    words: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[str, ...], ...]
    columns: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    @classmethod
    def from_pairs(cls, sentences: Iterable[Iterable[tuple[str, str]]]) -> Self:
        """Return a split of sentences that consist of pairs of a word and its tag."""
        rows = [tuple(zip(*pairs, strict=True)) for pairs in sentences]
        return cls(tuple(words for words, _ in rows), tuple(tags for _, tags in rows))


@dataclass(frozen=True, eq=False)
class TaggedData(ThreeSplits[TaggedSplit]):
    """A tagged set; raise InputError if a split has no sentences.

    Attributes:
        classes: all tags of the three splits, sorted; tags of spans in BIO for every scheme of the files.
        scored: "spans" for F1 of the tagged spans; "tokens" for the accuracy of the tags.
        left_out: number of rows and tokens of the files that are in no split: unit → split → number.
    """

    kind: ClassVar[str] = "sequence-labelling"

    scored: Scored = field(kw_only=True)
    left_out: Mapping[Unit, Mapping[str, int]] = field(default_factory=dict, kw_only=True)

    def tokens(self) -> dict[str, int]:
        """Return the number of words of each split."""
        return {name: sum(map(len, split.words)) for name, split in self.splits().items()}

    def count_classes(self, split: TaggedSplit) -> list[int]:
        """Return the number of words with each tag in a split."""
        counts = Counter(tag for tags in split.tags for tag in tags)
        return [counts[tag] for tag in self.classes]


def tagged_data(
    source: Source,
    splits: Sequence[TaggedSplit],
    notes: Iterable[str],
    scored: Scored,
    left_out: Mapping[Unit, Mapping[str, int]] = {},
) -> TaggedData:
    """Return the data set of train, dev and test, whose classes are all their tags."""
    train, dev, test = splits
    classes = tuple(sorted({tag for split in splits for tags in split.tags for tag in tags}))
    return TaggedData(source.name, classes, train, dev, test, tuple(notes), scored=scored, left_out=left_out)
