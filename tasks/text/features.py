"""Features of words: their spelling, their characters, and columns of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dropbench.tasks.text.spec import CHARACTERS, SPELLING
from dropbench.tasks.text.tokenizer import PADDING, UNKNOWN, build_vocab

MAX_WORD_CHARS = 24
"""Maximum number of characters encoded per word: half of them from its start, half from its end."""


class WordFeatures:
    """The map from words to the ids of their features.

    Attributes:
        vocabularies: by feature, the ids of the values that it has in train.
    """

    def __init__(
        self,
        names: Iterable[str],
        train: Sequence[Sequence[str]],
        columns: Mapping[str, Sequence[Sequence[str]]] = {},
    ) -> None:
        """Build the vocabularies of some features from the words of train and from its columns."""
        self.vocabularies = {name: _build_vocabulary(name, train, columns) for name in names}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of ids of each feature."""
        return {name: UNKNOWN + 1 + len(values) for name, values in self.vocabularies.items()}

    def encode(self, words: Sequence[str], columns: Mapping[str, Sequence[str]] = {}) -> dict[str, Tensor]:
        """Return the ids of the features of W words: (W,), or (W, C) for characters."""
        return {name: torch.tensor(self._ids(name, words, columns)) for name in self.vocabularies}

    def _ids(
        self, name: str, words: Sequence[str], columns: Mapping[str, Sequence[str]]
    ) -> list[int] | list[list[int]]:
        vocabulary = self.vocabularies[name]
        if name == CHARACTERS:
            ids = [[vocabulary.get(character, UNKNOWN) for character in _shorten(word)] for word in words]
            longest = max(1, *map(len, ids))  # of the words of an empty text, too
            return [word + [PADDING] * (longest - len(word)) for word in ids]
        values = map(SPELLING[name], words) if name in SPELLING else columns[name]
        return [vocabulary.get(value, UNKNOWN) for value in values]


def pad_features(texts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the padded ids of the features of texts: (B, W), or (B, W, C) for characters."""
    return {name: _pad([text[name] for text in texts]) for name in texts[0]}


def mask_features(features: Mapping[str, Tensor], padding: Tensor) -> dict[str, Tensor]:
    """Return ids (…, W) or (…, W, C) by feature, with padding where a mask (…, W) is true."""
    return {
        name: ids.masked_fill(padding.view(*padding.shape, *[1] * (ids.ndim - padding.ndim)), PADDING)
        for name, ids in features.items()
    }


def _build_vocabulary(
    name: str, train: Sequence[Sequence[str]], columns: Mapping[str, Sequence[Sequence[str]]]
) -> dict[str, int]:
    if name == CHARACTERS:
        return build_vocab(character for words in train for word in words for character in word)
    if name in SPELLING:
        return build_vocab((SPELLING[name](word) for words in train for word in words), min_count=2)
    return build_vocab(value for values in columns[name] for value in values)


def _pad(rows: Sequence[Tensor]) -> Tensor:
    if rows[0].ndim > 1:
        longest = max(row.shape[1] for row in rows)
        rows = [nn.functional.pad(row, (0, longest - row.shape[1]), value=PADDING) for row in rows]
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=PADDING)


def _shorten(word: str) -> str:
    return word if len(word) <= MAX_WORD_CHARS else word[: MAX_WORD_CHARS // 2] + word[-MAX_WORD_CHARS // 2 :]
