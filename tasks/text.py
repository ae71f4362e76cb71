"""What the tasks on text share: tokens, pre-trained word vectors, batches of like length, words that are hidden."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.analysis.subset import random_subset
from harness.errors import InputError
from harness.models import MODELS
from harness.recipe import Recipe
from harness.registry import load
from harness.task import Split
from harness.trial import Trial
from tasks.accuracy import accuracy
from tasks.making import check_model
from tasks.outlines.text import TextOutline, TextRecipe
from tasks.weights import located_weights
from tasks.words import Tokenizer, WordTokenizer

POOL = 50
"""Batches of like length are made within so many batches' samples, so that an epoch's order stays random."""


class TextTask(TextOutline):
    """A task on text.

    Attributes, after `setup`:
        classes: names of the labels.
        tokenizer: makes the token ids.
        lengths: by split, the number of tokens of each sample.
    """

    classes: tuple[str, ...]
    tokenizer: Tokenizer
    lengths: dict[str, list[int]]

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`; the vocabulary, which is not known yet, fits any model."""

        def build(recipe: Recipe, classes: int) -> nn.Module:
            return cls.make_model(trial, cast(TextRecipe, recipe), vocabulary=2, classes=max(2, classes))

        check_model(cls, trial, build)

    @classmethod
    def make_model(cls, trial: Trial, recipe: TextRecipe, **known: Any) -> nn.Module:
        """The trial's model for what is known of its data."""
        weights = located_weights(trial)
        if weights is not None:
            known["weights"] = weights
        return MODELS.get(trial.model)(trial.model, recipe.model, head=cls.head, max_length=recipe.max_length, **known)

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        recipe = self.recipe
        if recipe.vectors is None:
            return self.make_model(self.trial, recipe, **self.known())
        from tasks.data.vectors import locate_vectors, read_vectors, vectors_fingerprint

        path = locate_vectors(recipe.vectors, self.settings)
        if vectors_fingerprint(path) != recipe.vectors_fingerprint:
            raise InputError(f"vectors '{recipe.vectors}' in {path} have changed since the trial was made")
        if not isinstance(self.tokenizer, WordTokenizer):
            raise InputError(f"vectors={recipe.vectors}: model '{self.trial.model}' has tokens of its own, not words")
        vocabulary = self.tokenizer.vocabulary
        vectors = read_vectors(path, vocabulary)
        self.notes.append(
            f"{vectors.found:,} of {vectors.wanted:,} words have vectors in {recipe.vectors} ({vectors.dim}-d)"
        )
        sized = recipe.model_copy(update={"model": {**recipe.model, "word_dim": vectors.dim}})
        model = self.make_model(self.trial, sized, **self.known())
        embedding: nn.Embedding = cast(Any, model).encoder.embedding
        with torch.no_grad():
            if vectors.found:
                rows = torch.tensor([vocabulary[word] for word in vectors.vectors])
                given = torch.stack([torch.from_numpy(vector) for vector in vectors.vectors.values()])
                # As large as the random ones: published vectors are many times as large, and drown the positions.
                embedding.weight[rows] = given * (embedding.embedding_dim * given.square().mean()).rsqrt()
        embedding.weight.requires_grad_(not recipe.freeze_vectors)
        return model

    def known(self) -> dict[str, Any]:
        """What the task knows of its data that a model must know."""
        return {"vocabulary": self.tokenizer.size, "classes": len(self.classes)}

    def make_tokenizer(self, train: Iterable[Sequence[str]]) -> Tokenizer:
        """The tokenizer of the model where it has one of its own, else one of the words of train."""
        own = MODELS.entry(self.trial.model).facts.get("tokenizer")
        weights = located_weights(self.trial)
        if own is not None and weights is not None:
            made: Tokenizer = load(own)(weights)
            return made
        return WordTokenizer(train, self.recipe.min_count, self.recipe.lowercase)

    def cut(self, tokens: list[int]) -> Tensor:
        """(T,) token ids, T at most `max_length`."""
        return torch.tensor(self.tokenizer.cut(tokens, self.recipe.max_length))

    def check_lengths(self) -> None:
        """Refuse a window that no sample is long enough for; note how many samples `max_length` cuts."""
        longest = max(length for lengths in self.lengths.values() for length in lengths)
        window = self.trial.regularizer.params.get("window", 1)
        if isinstance(window, int) and window > longest:
            raise InputError(f"window={window}: longer than the longest text of '{self.trial.data.name}' ({longest})")

    def note_cut(self, split: str, whole: Iterable[int]) -> None:
        """Note how many samples of a split are longer than `max_length`, by their whole lengths."""
        lengths = list(whole)
        cut = sum(length > self.recipe.max_length for length in lengths)
        if cut:
            self.notes.append(
                f"{split}: {cut:,} of {len(lengths):,} are longer than max_length={self.recipe.max_length}, and are cut"
            )

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.lengths[split])

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Batches of samples of like length."""
        order = sorted(range(self.size(split)), key=self.lengths[split].__getitem__)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Shuffled batches of samples of like length: little padding, and every sample once but for the last few."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.size("train"), generator=generator).tolist()
        order = order[: len(order) - len(order) % size] or order
        batches = []
        for start in range(0, len(order), size * POOL):
            pool = sorted(order[start : start + size * POOL], key=self.lengths["train"].__getitem__)
            batches += [pool[place : place + size] for place in range(0, len(pool), size)]
        for place in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[place]

    def padded(self, split: Split, tokens: Sequence[Tensor]) -> Tensor:
        """(B, T) token ids, padded; in training, some words are not shown."""
        filled = nn.utils.rnn.pad_sequence(list(tokens), batch_first=True, padding_value=self.tokenizer.padding)
        if split == "train" and self.recipe.word_dropout:
            hidden = (torch.rand(filled.shape) < self.recipe.word_dropout) & (filled != self.tokenizer.padding)
            filled = filled.masked_fill(hidden, self.tokenizer.unknown)
        return filled

    @abstractmethod
    def tokens_of(self, batch: Any) -> Tensor:
        """The token ids of a batch, (…, T)."""

    @abstractmethod
    def with_tokens(self, batch: Any, tokens: Tensor) -> Any:
        """The batch with other token ids."""

    def without_words(self, batch: Any, share: float, generator: torch.Generator) -> Any:
        """Words become padding where they stand; the others keep their positions."""
        tokens = self.tokens_of(batch)
        flat = tokens.flatten(0, -2)
        gone = random_subset((flat != self.tokenizer.padding).cpu(), share, generator)
        hidden = flat.masked_fill(gone.to(flat.device), self.tokenizer.padding)
        return self.with_tokens(batch, hidden.view(tokens.shape))


class LabelledTextTask(TextTask):
    """A task that gives each sample one label; a batch is token ids and labels (B,)."""

    def tokens_of(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """See `TextTask.tokens_of`."""
        return batch[0]

    def with_tokens(self, batch: tuple[Tensor, Tensor], tokens: Tensor) -> tuple[Tensor, Tensor]:
        """See `TextTask.with_tokens`."""
        return tokens, batch[1]

    def weight(self, batch: tuple[Tensor, Tensor]) -> float:
        """The number of samples."""
        return len(batch[1])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Cross entropy."""
        tokens, labels = batch
        return cross_entropy(model(tokens), labels, label_smoothing=self.recipe.label_smoothing)

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Accuracy in percent."""
        return accuracy(model, batches)
