"""From texts to token ids: by the words of the training data, or by a pre-trained model's own pieces of words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
PADDING, UNKNOWN = 0, 1
"""Ids of every vocabulary that is made here; in those of features, too."""
CASES = ("lower", "Title", "UPPER", "miXed", "digits", "some digits", "marks")


class Tokenizer(Protocol):
    """Makes token ids.

    Attributes:
        padding: the id that fills batches up.
        unknown: the id of a token that is not known or not shown.
        size: number of ids.
    """

    padding: int
    unknown: int
    size: int

    def text(self, text: str) -> list[int]:
        """The ids of a text, at least one."""
        ...

    def words(self, words: Sequence[str]) -> tuple[list[int], list[int] | None]:
        """The ids of a sentence, and where each word's first token stands; None: a word is a token."""
        ...

    def pieces(self, text: str | Sequence[str]) -> list[str]:
        """The tokens of a text or a sentence as a person sees them, also those that are not known."""
        ...

    def cut(self, tokens: list[T], longest: int) -> list[T]:
        """The tokens of a text that is not longer than `longest`."""
        ...


class WordTokenizer:
    """A word is a token; those are known that occur in the training data at least `min_count` times."""

    padding, unknown = PADDING, UNKNOWN

    def __init__(self, texts: Iterable[Sequence[str]], min_count: int, lowercase: bool) -> None:
        self.lowercase = lowercase
        self.vocabulary = numbered((word for text in texts for word in map(self.form, text)), min_count)
        self.size = len(self.vocabulary) + UNKNOWN + 1

    def form(self, word: str) -> str:
        """A word as it is looked up."""
        return word.lower() if self.lowercase else word

    def text(self, text: str) -> list[int]:
        """See `Tokenizer.text`."""
        return self.words(split_words(text))[0] or [UNKNOWN]

    def words(self, words: Sequence[str]) -> tuple[list[int], None]:
        """See `Tokenizer.words`."""
        return [self.vocabulary.get(self.form(word), UNKNOWN) for word in words], None

    def pieces(self, text: str | Sequence[str]) -> list[str]:
        """See `Tokenizer.pieces`."""
        return [self.form(word) for word in (split_words(text) if isinstance(text, str) else text)]

    def cut(self, tokens: list[T], longest: int) -> list[T]:
        """See `Tokenizer.cut`."""
        return tokens[:longest]


def split_words(text: str) -> list[str]:
    """Words and marks of punctuation; the published sets that are tokenised already stay as they are."""
    return re.findall(r"\w+|[^\w\s]", text)


def numbered(values: Iterable[str], min_count: int = 1) -> dict[str, int]:
    """Numbers from 2 for the values that occur often enough, in their order."""
    counts = Counter(values)
    known = sorted(value for value, count in counts.items() if count >= min_count)
    return {value: number for number, value in enumerate(known, start=UNKNOWN + 1)}


def case_of(word: str) -> str:
    """One of `CASES`: how a word is written."""
    if word.isdigit():
        return "digits"
    if any(character.isdigit() for character in word):
        return "some digits"
    if not any(character.isalpha() for character in word):
        return "marks"
    if word.islower():
        return "lower"
    if word.isupper():
        return "UPPER"
    return "Title" if word[0].isupper() and word[1:].islower() else "miXed"
