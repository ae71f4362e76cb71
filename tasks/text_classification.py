"""Text classification (DropAttention, Section 5.1): one label a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from harness.task import Shown, Split
from tasks.data import read
from tasks.data.classification import TextClassificationData, TextSplit
from tasks.making import located, read_noted
from tasks.outlines.text import TextClassificationOutline
from tasks.text import LabelledTextTask
from tasks.words import split_words


class TextClassification(LabelledTextTask, TextClassificationOutline):
    """A label for each text; words are the tokens, the vocabulary is train's."""

    def setup(self) -> None:
        """Read the texts, make the vocabulary, turn words into numbers."""
        data = read_noted(self, TextClassificationData)
        self.classes = data.classes
        self.tokenizer = self.make_tokenizer(map(split_words, data.train.texts))
        self.tokens: dict[str, list[Tensor]] = {}
        for split, rows in data.splits().items():
            whole = [self.tokenizer.text(text) for text in rows.texts]
            self.note_cut(split, map(len, whole))
            self.tokens[split] = [self.cut(tokens) for tokens in whole]
        self.labels = {name: torch.as_tensor(split.labels) for name, split in data.splits().items()}
        self.lengths = {split: [len(text) for text in texts] for split, texts in self.tokens.items()}
        self.check_lengths()

    def batch(self, split: Split, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Token ids (B, T), padded, and labels (B,)."""
        return self.padded(split, [self.tokens[split][i] for i in indices]), self.labels[split][list(indices)]

    def shown(self, split: Split, index: int) -> Shown:
        """The tokens that the model gets, those too that it does not know."""
        pieces = self.tokenizer.pieces(self.texts[split].texts[index])
        words = tuple(self.tokenizer.cut(pieces, self.recipe.max_length))
        return Shown(self.classes[int(self.labels[split][index])], words=words)

    @cached_property
    def texts(self) -> Mapping[str, TextSplit]:
        """The texts themselves, read again: training does not keep them."""
        return read(located(self.trial, self.settings), TextClassificationData).splits()
