"""Text classification (DropAttention, Section 5.1): one label a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.analysis.subset import random_subset
from harness.errors import InputError
from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import MODELS, Metric, Shown, Split, Task
from harness.trial import Trial, TrialRequest
from tasks.accuracy import ACCURACY, accuracy
from tasks.data import read
from tasks.data.classification import TextClassificationData, TextSplit
from tasks.making import check_model, located, make_trial

PADDING, UNKNOWN = 0, 1


class TextRecipe(Recipe):
    """What text adds to a recipe."""

    max_length: int = Field(default=256, ge=1, description="tokens kept of a text")
    min_count: int = Field(default=1, ge=1, description="how often a word must occur in train to be known")
    lowercase: bool = True
    word_dropout: float = Field(default=0.0, ge=0, lt=1, description="share of words hidden in training")


class TextClassification(Task):
    """A label for each text; words are the tokens, the vocabulary is train's."""

    name: ClassVar[str] = "text-classification"
    recipe_type: ClassVar[type[Recipe]] = TextRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    recipe: TextRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return make_trial(cls, request, settings)

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`; the vocabulary, which is not known yet, fits any model."""
        check_model(cls, trial, lambda recipe, classes: _build(trial.model, cast(TextRecipe, recipe), 2, classes))

    def setup(self) -> None:
        """Read the texts, make the vocabulary, turn words into numbers."""
        data = read(located(self.trial, self.settings), TextClassificationData)
        self.classes = data.classes
        words = {name: [self.words(text) for text in split.texts] for name, split in data.splits().items()}
        counts = Counter(word for text in words["train"] for word in text)
        known = sorted(word for word, count in counts.items() if count >= self.recipe.min_count)
        self.vocabulary = {word: number for number, word in enumerate(known, start=UNKNOWN + 1)}
        self.tokens = {name: [self.encode(text) for text in texts] for name, texts in words.items()}
        self.labels = {name: torch.as_tensor(split.labels) for name, split in data.splits().items()}
        longest = max(len(text) for texts in self.tokens.values() for text in texts)
        window = self.trial.regularizer.params.get("window", 1)
        if isinstance(window, int) and window > longest:
            raise InputError(f"window={window}: longer than the longest text of '{self.trial.data.name}' ({longest})")

    def words(self, text: str) -> list[str]:
        """Words and marks of punctuation; the published sets that are tokenised already stay as they are."""
        return re.findall(r"\w+|[^\w\s]", text.lower() if self.recipe.lowercase else text)

    def encode(self, words: list[str]) -> Tensor:
        """(T,) token ids, T ≥ 1 and ≤ max_length."""
        numbers = [self.vocabulary.get(word, UNKNOWN) for word in words[: self.recipe.max_length]]
        return torch.tensor(numbers or [UNKNOWN])

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        return _build(self.trial.model, self.recipe, len(self.vocabulary) + UNKNOWN + 1, len(self.classes))

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.tokens[split])

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Shuffled batches of texts of like length: little padding, and every text once but for the last few."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.size("train"), generator=generator).tolist()
        order = order[: len(order) - len(order) % size] or order
        batches = []
        for start in range(0, len(order), size * 50):
            pool = sorted(order[start : start + size * 50], key=lambda index: len(self.tokens["train"][index]))
            batches += [pool[place : place + size] for place in range(0, len(pool), size)]
        for place in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[place]

    def batch(self, split: Split, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Token ids (B, T) with 0 for padding, and labels (B,)."""
        texts = [self.tokens[split][index] for index in indices]
        tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PADDING)
        if split == "train" and self.recipe.word_dropout:
            hidden = (torch.rand(tokens.shape) < self.recipe.word_dropout) & (tokens != PADDING)
            tokens = tokens.masked_fill(hidden, UNKNOWN)
        return tokens, self.labels[split][list(indices)]

    def shown(self, split: Split, index: int) -> Shown:
        """The words that the model gets, those too that it does not know."""
        words = self.words(self.texts[split].texts[index])[: self.recipe.max_length]
        return Shown(self.classes[int(self.labels[split][index])], words=tuple(words))

    @cached_property
    def texts(self) -> Mapping[str, TextSplit]:
        """The texts themselves, read again: training does not keep them."""
        return read(located(self.trial, self.settings), TextClassificationData).splits()

    def without_words(self, batch: Any, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Words become padding where they stand; the others keep their positions."""
        tokens, labels = batch
        gone = random_subset((tokens != PADDING).cpu(), share, generator)
        return tokens.masked_fill(gone.to(tokens.device), PADDING), labels

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Cross entropy."""
        tokens, labels = batch
        return cross_entropy(model(tokens), labels, label_smoothing=self.recipe.label_smoothing)

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Accuracy in percent."""
        return accuracy(model, batches)


def _build(model: str, recipe: TextRecipe, vocabulary: int, classes: int) -> nn.Module:
    return MODELS.get(model)(model, recipe.model, vocabulary=vocabulary, classes=classes, max_length=recipe.max_length)
