"""Textual entailment (DropAttention, Section 5.3): what a hypothesis is to a premise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.task import Shown, Split
from tasks.data.pairs import PairData
from tasks.making import read_noted
from tasks.outlines.text import TextualEntailmentOutline
from tasks.text import LabelledTextTask
from tasks.words import split_words


class TextualEntailment(LabelledTextTask, TextualEntailmentOutline):
    """A label for each pair of texts; all splits are tokenised alike."""

    def setup(self) -> None:
        """Read the pairs, make the vocabulary, turn words into numbers."""
        self.data = read_noted(self, PairData)
        self.classes = self.data.classes
        train = self.data.train
        self.tokenizer = self.make_tokenizer(map(split_words, (*train.premises, *train.hypotheses)))
        self.tokens: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for split, rows in self.data.splits().items():
            premises, hypotheses = (
                [self.tokenizer.text(text) for text in texts] for texts in (rows.premises, rows.hypotheses)
            )
            self.note_cut(split, map(len, premises + hypotheses))
            self.tokens[split] = [
                (self.cut(one), self.cut(other)) for one, other in zip(premises, hypotheses, strict=True)
            ]
        self.labels = {name: torch.as_tensor(split.labels) for name, split in self.data.splits().items()}
        self.lengths = {split: [max(map(len, pair)) for pair in pairs] for split, pairs in self.tokens.items()}
        self.check_lengths()

    def batch(self, split: Split, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Token ids of premises and hypotheses (B, 2, T), padded, and labels (B,)."""
        texts = [text for index in indices for text in self.tokens[split][index]]
        return self.padded(split, texts).unflatten(0, (-1, 2)), self.labels[split][list(indices)]

    def shown(self, split: Split, index: int) -> Shown | None:
        """Nothing: premise and hypothesis are two rows of the encoder, and a figure has one."""
        return None
