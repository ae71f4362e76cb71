"""Base classes of the text tasks: tokenizing, pre-trained word vectors, length bucketing, word masking."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.errors import InputError
from harness.models.catalog import MODELS
from harness.registry import load
from harness.seeding import random_subset
from harness.trials.recipe import Recipe
from harness.trials.task import Split
from harness.trials.trial import Trial
from tasks.accuracy import accuracy
from tasks.data.read import Data
from tasks.text.spec import TextRecipe, TextSpec
from tasks.text.tokenizer import Tokenizer, WordTokenizer, split_words
from tasks.trial_factory import check_model, read_with_notes
from tasks.weights import resolve_weights

POOL = 50
"""Batches per pool: samples are sorted by length only within a pool, so that the order of an epoch stays random."""


class TextTask(TextSpec):
    """A text task.

    Attributes, after `setup`:
        classes: names of the labels.
        tokenizer: the map from texts to token ids.
        lengths: by split, the number of tokens of each sample.
    """

    classes: tuple[str, ...]
    tokenizer: Tokenizer
    lengths: dict[str, list[int]]

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`; the vocabulary size, unknown before the data are read, fits any model."""

        def build(recipe: Recipe, classes: int) -> nn.Module:
            return cls.make_model(trial, cast(TextRecipe, recipe), vocabulary=2, classes=max(2, classes))

        check_model(cls, trial, build)

    @classmethod
    def make_model(cls, trial: Trial, recipe: TextRecipe, **sizes: Any) -> nn.Module:
        """Return the model of a trial; `sizes` are the arguments that depend on its data."""
        weights = resolve_weights(trial)
        if weights is not None:
            sizes["weights"] = weights
        return MODELS.get(trial.model)(trial.model, recipe.model, head=cls.head, max_length=recipe.max_length, **sizes)

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        recipe = self.recipe
        if recipe.vectors is None:
            return self.make_model(self.trial, recipe, **self.model_sizes())
        from tasks.data.text.word_vectors import locate_vectors, read_vectors, vectors_fingerprint

        path = locate_vectors(recipe.vectors, self.settings)
        if vectors_fingerprint(path) != recipe.vectors_fingerprint:
            raise InputError(f"vectors '{recipe.vectors}' in {path} have changed since the trial was made")
        if not isinstance(self.tokenizer, WordTokenizer):
            raise InputError(f"vectors={recipe.vectors}: model '{self.trial.model}' has its own tokenizer, not words")
        vocabulary = self.tokenizer.vocabulary
        vectors = read_vectors(path, vocabulary)
        self.notes.append(
            f"{vectors.found:,} of {vectors.wanted:,} words have vectors in {recipe.vectors} ({vectors.dim}-d)"
        )
        sized = recipe.model_copy(update={"model": {**recipe.model, "word_dim": vectors.dim}})
        model = self.make_model(self.trial, sized, **self.model_sizes())
        embedding: nn.Embedding = cast(Any, model).encoder.embedding
        with torch.no_grad():
            if vectors.found:
                rows = torch.tensor([vocabulary[word] for word in vectors.vectors])
                pretrained = torch.stack([torch.from_numpy(vector) for vector in vectors.vectors.values()])
                # Scaled to the norm of the random embeddings: at their published norm the vectors dwarf the positions.
                embedding.weight[rows] = pretrained * (embedding.embedding_dim * pretrained.square().mean()).rsqrt()
        embedding.weight.requires_grad_(not recipe.freeze_vectors)
        return model

    def model_sizes(self) -> dict[str, Any]:
        """Return the arguments of the model that depend on the data."""
        return {"vocabulary": self.tokenizer.size, "classes": len(self.classes)}

    def make_tokenizer(self, train: Iterable[Sequence[str]]) -> Tokenizer:
        """Return the tokenizer that the model brings, or else one of the words of train."""
        target = MODELS.entry(self.trial.model).facts.get("tokenizer")
        weights = resolve_weights(self.trial)
        if target is not None and weights is not None:
            tokenizer: Tokenizer = load(target)(weights)
            return tokenizer
        return WordTokenizer(train, self.recipe.min_count, self.recipe.lowercase)

    def truncate(self, tokens: list[int]) -> Tensor:
        """Return token ids (T,), T at most `max_length`."""
        return torch.tensor(self.tokenizer.truncate(tokens, self.recipe.max_length))

    def check_window(self) -> None:
        """Raise InputError if the regularizer's window is longer than every sample."""
        longest = max(length for lengths in self.lengths.values() for length in lengths)
        window = self.trial.regularizer.params.get("window", 1)
        if isinstance(window, int) and window > longest:
            raise InputError(f"window={window}: longer than the longest text of '{self.trial.data.name}' ({longest})")

    def note_truncated(self, split: str, full_lengths: Iterable[int]) -> None:
        """Add a note with the number of samples of a split that are longer than `max_length`."""
        lengths = list(full_lengths)
        truncated = sum(length > self.recipe.max_length for length in lengths)
        if truncated:
            self.notes.append(
                f"{split}: {truncated:,} of {len(lengths):,} texts truncated to max_length={self.recipe.max_length}"
            )

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.lengths[split])

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Yield batches of samples of similar length."""
        order = sorted(range(self.size(split)), key=self.lengths[split].__getitem__)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield shuffled batches of samples of similar length, to limit padding.

        Every sample occurs once, except for the remainder that fills no batch.
        """
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.size("train"), generator=generator).tolist()
        order = order[: len(order) - len(order) % size] or order
        batches = []
        for start in range(0, len(order), size * POOL):
            pool = sorted(order[start : start + size * POOL], key=self.lengths["train"].__getitem__)
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        for number in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[number]

    def pad(self, split: Split, tokens: Sequence[Tensor]) -> Tensor:
        """Return padded token ids (B, T), with word dropout applied in training."""
        padded = nn.utils.rnn.pad_sequence(list(tokens), batch_first=True, padding_value=self.tokenizer.padding)
        if split == "train" and self.recipe.word_dropout:
            dropped = (torch.rand(padded.shape) < self.recipe.word_dropout) & (padded != self.tokenizer.padding)
            padded = padded.masked_fill(dropped, self.tokenizer.unknown)
        return padded

    @abstractmethod
    def get_tokens(self, batch: Any) -> Tensor:
        """Return the token ids of a batch, (…, T)."""

    @abstractmethod
    def replace_tokens(self, batch: Any, tokens: Tensor) -> Any:
        """Return the batch with other token ids."""

    def mask_tokens(self, batch: Any, share: float, generator: torch.Generator) -> Any:
        """See `Task.mask_tokens`; masked words become padding, so that all others keep their positions."""
        tokens = self.get_tokens(batch)
        flat = tokens.flatten(0, -2)
        mask = random_subset((flat != self.tokenizer.padding).cpu(), share, generator)
        masked = flat.masked_fill(mask.to(flat.device), self.tokenizer.padding)
        return self.replace_tokens(batch, masked.view(tokens.shape))


class LabeledTextTask(TextTask):
    """A task with one label per text or per pair of texts.

    Class attributes:
        data_type: type of the data.
        fields: fields of a split that hold the texts of a sample.
    """

    data_type: ClassVar[type[Data]]
    fields: ClassVar[tuple[str, ...]]

    def setup(self) -> None:
        """Read the texts, build the vocabulary, and encode the texts."""
        data: Any = read_with_notes(self, self.data_type)
        self.classes = data.classes
        train = chain.from_iterable(getattr(data.train, field) for field in self.fields)
        self.tokenizer = self.make_tokenizer(map(split_words, train))
        self.tokens: dict[str, list[tuple[Tensor, ...]]] = {}
        for split, rows in data.splits().items():
            encoded = [[self.tokenizer.encode(text) for text in getattr(rows, field)] for field in self.fields]
            self.note_truncated(split, map(len, chain.from_iterable(encoded)))
            self.tokens[split] = [tuple(map(self.truncate, texts)) for texts in zip(*encoded, strict=True)]
        self.labels = {name: torch.as_tensor(split.labels) for name, split in data.splits().items()}
        self.lengths = {split: [max(map(len, texts)) for texts in samples] for split, samples in self.tokens.items()}
        self.check_window()

    def batch(self, split: Split, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return padded token ids, (B, T) or for pairs (B, 2, T), and labels (B,)."""
        tokens = self.pad(split, [text for index in indices for text in self.tokens[split][index]])
        if len(self.fields) > 1:
            tokens = tokens.unflatten(0, (-1, len(self.fields)))
        return tokens, self.labels[split][list(indices)]

    def get_tokens(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """See `TextTask.get_tokens`."""
        return batch[0]

    def replace_tokens(self, batch: tuple[Tensor, Tensor], tokens: Tensor) -> tuple[Tensor, Tensor]:
        """See `TextTask.replace_tokens`."""
        return tokens, batch[1]

    def num_loss_terms(self, batch: tuple[Tensor, Tensor]) -> float:
        """Return the number of samples."""
        return len(batch[1])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the cross entropy."""
        tokens, labels = batch
        return cross_entropy(model(tokens), labels, label_smoothing=self.recipe.label_smoothing)

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the accuracy in percent."""
        return accuracy(model, batches)
