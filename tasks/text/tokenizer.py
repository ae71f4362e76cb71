"""Tokenizers: by the words of the training data, or by the subwords of a pre-trained model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
Window = tuple[dict[str, list[int]], list[tuple[int, int] | None]]
"""A question with a part of a context as one input: ids by the name of the input, ``input_ids`` among them, and the
characters of the context, first and end, that each token has; None for the other tokens."""
WORD = re.compile(r"\w+|[^\w\s]")
PADDING, UNKNOWN = 0, 1
"""Ids in every vocabulary of `build_vocab`, of words and of features."""


class Tokenizer(Protocol):
    """A map from texts to token ids.

    Attributes:
        padding: the id of padding.
        unknown: the id of a token that is out of vocabulary or hidden by word dropout.
        size: number of ids.
    """

    padding: int
    unknown: int
    size: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, at least one."""
        ...

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[int], list[int] | None]]:
        """Return the ids of each sentence, and the position of each word's first token; None: a token per word."""
        ...

    def tokenize(self, text: str | Sequence[str]) -> list[str]:
        """Return the tokens of a text or a sentence as strings, out-of-vocabulary tokens included."""
        ...

    def truncate(self, tokens: list[T], max_length: int) -> list[T]:
        """Return at most `max_length` of the tokens of a text."""
        ...


class PairTokenizer(Tokenizer, Protocol):
    """A tokenizer that also encodes two texts as one input."""

    def encode_pairs(
        self, pairs: Sequence[tuple[str, str]], max_length: int
    ) -> tuple[dict[str, list[list[int]]], list[bool]]:
        """Return ``input_ids`` and further inputs of each pair, at most `max_length`, and whether texts were cut."""
        ...


class WindowTokenizer(Tokenizer, Protocol):
    """A tokenizer that also encodes questions with the parts of long contexts."""

    def encode_windows(
        self, questions: Sequence[str], contexts: Sequence[str], max_length: int, stride: int
    ) -> Iterable[tuple[list[Window], bool]]:
        """Yield the windows of each context, of at most `max_length` tokens, and whether its question was cut.

        Neighboring windows share `stride` tokens of the context, for which a long question loses its last tokens.
        """
        ...


class WordTokenizer(Tokenizer):
    """A tokenizer with one token per word; its vocabulary is the words that occur at least `min_count` times."""

    padding, unknown = PADDING, UNKNOWN

    def __init__(self, texts: Iterable[Sequence[str]], min_count: int, lowercase: bool) -> None:
        self.lowercase = lowercase
        self.vocabulary = build_vocab((word for text in texts for word in map(self.normalize, text)), min_count)
        self.size = len(self.vocabulary) + UNKNOWN + 1

    def normalize(self, word: str) -> str:
        """Return the form of a word that the vocabulary holds."""
        return word.lower() if self.lowercase else word

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._ids(split_words(text)) or [UNKNOWN] for text in texts]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[int], list[int] | None]]:
        return [(self._ids(words), None) for words in sentences]

    def _ids(self, words: Iterable[str]) -> list[int]:
        return [self.vocabulary.get(self.normalize(word), UNKNOWN) for word in words]

    def encode_windows(
        self, questions: Sequence[str], contexts: Sequence[str], max_length: int, stride: int
    ) -> Iterable[tuple[list[Window], bool]]:
        """See `WindowTokenizer`; the id of an unknown word separates the question from the context."""
        limit = max(0, max_length - stride - 2)
        for asked, context in zip(self.encode(questions), contexts, strict=True):
            yield self._windows([*asked[:limit], self.unknown], context, max_length, stride), len(asked) > limit

    def _windows(self, start: list[int], context: str, max_length: int, stride: int) -> list[Window]:
        words, room = list(WORD.finditer(context)), max_length - len(start)
        windows: list[Window] = []
        for first in range(0, max(1, len(words) - stride), room - stride):
            some = words[first : first + room]
            ids = self._ids(word.group() for word in some)
            windows.append(({"input_ids": start + ids}, [*[None] * len(start), *(word.span() for word in some)]))
        return windows

    def tokenize(self, text: str | Sequence[str]) -> list[str]:
        return [self.normalize(word) for word in (split_words(text) if isinstance(text, str) else text)]

    def truncate(self, tokens: list[T], max_length: int) -> list[T]:
        return tokens[:max_length]


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text; data sets published in tokens come out unchanged."""
    return WORD.findall(text)


def build_vocab(values: Iterable[str], min_count: int = 1) -> dict[str, int]:
    """Return ids from 2, in alphabetical order, for the values that occur at least `min_count` times."""
    counts = Counter(values)
    frequent = sorted(value for value, count in counts.items() if count >= min_count)
    return {value: number for number, value in enumerate(frequent, start=UNKNOWN + 1)}


def word_shape(word: str) -> str:
    """Return the shape of a word: lower, Title, UPPER, miXed, digits, some digits or marks."""
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
