"""Base classes of the text tasks: tokenizing, pre-trained word vectors, length bucketing, word masking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from dropbench.harness.errors import CHANGED, InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import load
from dropbench.harness.seeding import random_subset
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.fingerprint import fingerprint
from dropbench.tasks.data.text.word_vectors import locate_vectors, read_vectors
from dropbench.tasks.text.spec import TextRecipe, TextSpec
from dropbench.tasks.text.tokenizer import Tokenizer, WordTokenizer
from dropbench.tasks.weights import resolve_weights

POOL = 50
"""Batches per pool: samples are sorted by length only within a pool, so that the order of an epoch stays random."""


class TextTask(TextSpec):
    """A text task.

    Attributes, after `setup`:
        tokenizer: the map from texts to token ids.
        lengths: by split, the number of tokens of each sample.
    """

    tokenizer: Tokenizer
    lengths: dict[str, list[int]]

    @classmethod
    def sizes_for(cls, recipe: TextRecipe, classes: int) -> dict[str, Any]:
        sizes = {"head": cls.head, "max_length": recipe.max_length, "vocabulary": 2, "classes": max(2, classes)}
        return {**sizes, "features": dict.fromkeys(recipe.features, 2)} if recipe.features else sizes

    def model_sizes(self) -> dict[str, Any]:
        return {**super().model_sizes(), "vocabulary": self.tokenizer.size, "classes": len(self.classes)}

    def build_model(self) -> nn.Module:
        recipe = self.recipe
        if recipe.vectors is None:
            return super().build_model()
        path = locate_vectors(recipe.vectors, self.settings)
        if fingerprint(path.parent, [path]) != recipe.vectors_fingerprint:
            raise InputError(f"vectors '{recipe.vectors}' in {path} {CHANGED}")
        if not isinstance(self.tokenizer, WordTokenizer):
            raise InputError(f"vectors={recipe.vectors}: model '{self.trial.model}' has its own tokenizer, not words")
        vocabulary = self.tokenizer.vocabulary
        dim, vectors = read_vectors(path, vocabulary)
        self.notes.append(f"{len(vectors):,} of {len(vocabulary):,} words have vectors in {recipe.vectors} ({dim}-d)")
        sized = recipe.model_copy(update={"model": {**recipe.model, "word_dim": dim}})
        model = self.make_model(self.trial, sized, self.model_sizes())
        embedding: nn.Embedding = cast(Any, model).encoder.embedding
        with torch.no_grad():
            if vectors:
                rows = torch.tensor([vocabulary[word] for word in vectors])
                pretrained = torch.stack([torch.from_numpy(vector) for vector in vectors.values()])
                # Scaled to the norm of the random embeddings: at their published norm the vectors dwarf the positions.
                embedding.weight[rows] = pretrained * (embedding.embedding_dim * pretrained.square().mean()).rsqrt()
        embedding.weight.requires_grad_(not recipe.freeze_vectors)
        self.load_initial_weights(model)
        return model

    def make_tokenizer(self, train: Iterable[Sequence[str]]) -> Tokenizer:
        """Return the tokenizer that the model brings, or else one of the words of train."""
        target = MODELS.entry(self.trial.model).facts.get("tokenizer")
        weights = resolve_weights(self.trial)
        if target is not None and weights is not None:
            return cast(Tokenizer, load(target)(weights))
        return WordTokenizer(train, self.recipe.min_count, self.recipe.lowercase)

    def truncate(self, rows: Iterable[list[int]]) -> Sequence[Tensor]:
        """Return the token ids (T,) of each text, T at most `max_length`."""
        return as_tensors([self.tokenizer.truncate(tokens, self.recipe.max_length) for tokens in rows])

    def check_window(self) -> None:
        """Raise InputError if the regularizer's window is longer than every sample."""
        longest = max(length for lengths in self.lengths.values() for length in lengths)
        window = self.trial.regularizer.params.get("window", 1)
        if isinstance(window, int) and window > longest:
            raise InputError(f"window={window}: longer than the longest text of '{self.trial.data.name}' ({longest})")

    def size(self, split: Split) -> int:
        return len(self.lengths[split])

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Yield batches of samples of similar length."""
        order = sorted(range(self.size(split)), key=self.lengths[split].__getitem__)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield shuffled batches of samples, except for an incomplete last one.

        They have similar lengths, to limit padding, unless the recipe has ``order: random``.
        """
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.size("train"), generator=generator).tolist()
        order = order[: len(order) - len(order) % size] or order
        batches = []
        pooled = size if self.recipe.order == "random" else size * POOL
        for start in range(0, len(order), pooled):
            pool = sorted(order[start : start + pooled], key=self.lengths["train"].__getitem__)
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

    def pad_words(self, tokens: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Return token ids (…, T) with a random share of each text's words masked, as in `Task.mask_tokens`.

        Masked words become padding, so that all others keep their positions.
        """
        flat = tokens.flatten(0, -2)
        mask = random_subset((flat != self.tokenizer.padding).cpu(), share, generator)
        return flat.masked_fill(mask.to(flat.device), self.tokenizer.padding).view(tokens.shape)


def as_tensors(rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
    """Return each row as a tensor (T,). They are parts of one, which is made in less time than many small ones."""
    ids = np.fromiter(chain.from_iterable(rows), np.int64, sum(map(len, rows)))
    return cast(Sequence[Tensor], torch.from_numpy(ids).split(list(map(len, rows))))
