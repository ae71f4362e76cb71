"""Inputs and heads of text encoders: embeddings of word features, and one label per text, word or pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from dropbench.adapters.text.options import Pooling
from dropbench.harness.errors import InputError

CHARACTERS = "characters"
"""The feature with shape (B, T, C): character ids, 0 for padding; all others have shape (B, T)."""
CHARACTER_DIM = 32
KERNEL = 3
HASH_PRIME = 1_000_003
HASH_RANGE = 2**31 - 1
"""Exclusive maximum of a hash, a prime; the product with `HASH_PRIME` fits 64 bits."""
CHARACTER_NGRAMS = range(3, 7)
"""Lengths of the n-grams of characters (Bojanowski et al. 2017, Section 3.2)."""
LINEAR_SCALE = 30.0
"""Factor of the weights of `LinearNgrams`."""


@dataclass(frozen=True)
class Head:
    """The options of a head.

    Attributes:
        pooling: of the vectors of a text.
        dropout: on pooled vectors, or on those of each word.
        linear_bigrams: hash buckets of the bigrams of a `LinearNgrams`; None: without it.
        linear_characters: hash buckets of its n-grams of characters; None: it has none.
    """

    pooling: Pooling
    dropout: float
    linear_bigrams: int | None = None
    linear_characters: int | None = None


def word_embedding(size: int, dim: int) -> nn.Embedding:
    """Return normal embeddings of standard deviation dim^-1/2; id 0 (padding) has a zero embedding."""
    table = nn.Embedding(size, dim, padding_idx=0)
    nn.init.normal_(table.weight, std=dim**-0.5)
    with torch.no_grad():
        table.weight[0].zero_()
    return table


class FeatureEmbedding(nn.Module):
    """The sum of the embeddings of all features; id 0 (padding) has a zero embedding."""

    def __init__(self, sizes: Mapping[str, int], dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                name: CharacterEmbedding(size, dim) if name == CHARACTERS else word_embedding(size, dim)
                for name, size in sizes.items()
            }
        )

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        """Embed feature ids, (B, T) or (B, T, C) by feature → (B, T, dim)."""
        return torch.stack([table(features[name]) for name, table in self.tables.items()]).sum(dim=0)


class CharacterEmbedding(nn.Module):
    """A convolution over the characters of a word with max pooling (Ma and Hovy 2016, Section 2.1)."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, CHARACTER_DIM, padding_idx=0)
        self.convolution = nn.Conv1d(CHARACTER_DIM, dim, KERNEL, padding=KERNEL // 2)

    def forward(self, characters: Tensor) -> Tensor:
        """Embed characters (B, T, C) → (B, T, dim); a word without characters (padding) has a zero embedding."""
        batch, words, length = characters.shape
        real = characters.view(batch * words, length) != 0
        channels = self.convolution(self.table(characters).view(batch * words, length, -1).transpose(1, 2))
        channels = channels.masked_fill(~real[:, None, :], float("-inf")).amax(dim=2)
        return cast(Tensor, channels.masked_fill(~real.any(dim=1, keepdim=True), 0.0).view(batch, words, -1))


def bigram_buckets(tokens: Tensor, buckets: int) -> Tensor:
    """Return a hash bucket for each token and the one before it: ids (B, T) → 1 to `buckets` (B, T), 0 for padding."""
    before = nn.functional.pad(tokens, (1, -1))
    return (1 + (before * HASH_PRIME + tokens) % buckets).masked_fill(tokens == 0, 0)


def character_buckets(characters: Tensor, buckets: int) -> Tensor:
    """Return a hash bucket for each n-gram of characters of each word, n in `CHARACTER_NGRAMS`.

    A word has one boundary before it and one after it, which are characters of its n-grams (Bojanowski et al. 2017,
    Section 3.2). Character ids (B, T, C), 0 for padding → 1 to `buckets`, 0 for padding (B, T, N).
    """
    lengths = (characters != 0).sum(dim=-1, keepdim=True)
    word = nn.functional.pad(characters, (1, 1))
    starts = torch.arange(word.shape[-1], device=word.device)
    ids = []
    hashes = torch.zeros_like(word)
    for n in range(1, min(CHARACTER_NGRAMS[-1], word.shape[-1]) + 1):
        last = word[..., n - 1 :]
        hashes = (hashes[..., : last.shape[-1]] * HASH_PRIME + last + 1) % HASH_RANGE
        if n in CHARACTER_NGRAMS:
            inside = (lengths > 0) & (starts[: last.shape[-1]] + n <= lengths + 2)
            ids.append((1 + hashes % buckets).masked_fill(~inside, 0))
    return torch.cat(ids, dim=-1)


class LinearNgrams(nn.Module):
    """A linear classifier of words, word bigrams and possibly n-grams of characters.

    Its logits are added to those of an encoder. It is wide and deep learning (Cheng et al. 2016, Section 3) with the
    features of Joulin et al. (2017, Section 2.2). The weights start at 0. They are stored divided by `LINEAR_SCALE`,
    because Adam changes a number by about the learning rate in a step, which is too little for the weights of rare
    words.
    """

    def __init__(self, vocabulary: int, bigrams: int, characters: int | None, classes: int) -> None:
        """Create the weights of `vocabulary` words, and of hash buckets for bigrams and n-grams of characters."""
        super().__init__()
        self.words = zero_embedding(vocabulary, classes)
        self.bigrams = zero_embedding(1 + bigrams, classes)
        self.characters = None if characters is None else zero_embedding(1 + characters, classes)

    def forward(self, tokens: Tensor, characters: Tensor | None = None) -> Tensor:
        """Classify texts: token ids (B, T) and ids of their words' characters (B, T, C) → logits (B, classes)."""
        weights = self.words(tokens) + self.bigrams(bigram_buckets(tokens, self.bigrams.num_embeddings - 1))
        lengths = (tokens != 0).sum(dim=1, keepdim=True)
        logits = LINEAR_SCALE * weights.sum(dim=1) / lengths.sqrt()
        if self.characters is not None:
            assert characters is not None
            ngrams = character_buckets(characters, self.characters.num_embeddings - 1).flatten(1)
            numbers = (ngrams != 0).sum(dim=1, keepdim=True).clamp_min(1)  # none: no word has characters
            logits = logits + LINEAR_SCALE * self.characters(ngrams).sum(dim=1) / numbers.sqrt()
        return cast(Tensor, logits)


def zero_embedding(size: int, dim: int) -> nn.Embedding:
    """Return embeddings (size, dim) of zeros; id 0 is padding."""
    table = nn.Embedding(size, dim, padding_idx=0)
    nn.init.zeros_(table.weight)
    return table


class TextEncoder(Protocol):
    """An nn.Module that encodes tokens as contextual vectors."""

    width: int

    @property
    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        ...

    def __call__(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Encode token ids (B, T) and ids by feature → vectors (B, T, width), and a mask of real tokens (B, T)."""
        ...


class TextClassifier(nn.Module):
    """An encoder, pooling over the real tokens, and a linear classifier, possibly beside a `LinearNgrams`."""

    def __init__(self, encoder: TextEncoder, classes: int, options: Head) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, options.pooling
        self.dropout = nn.Dropout(options.dropout)
        self.classifier = nn.Linear(encoder.width, classes)
        bigrams, vocabulary = options.linear_bigrams, encoder.embedding.num_embeddings
        self.linear = None if bigrams is None else LinearNgrams(vocabulary, bigrams, options.linear_characters, classes)

    def forward(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """Classify texts: token ids (B, T) and ids by feature → logits (B, classes)."""
        logits = self.classifier(self.dropout(pool(*self.encoder(tokens, features), self.pooling)))
        if self.linear is None:
            return cast(Tensor, logits)
        return cast(Tensor, logits + self.linear(tokens, (features or {}).get(CHARACTERS)))


class Tagger(TextClassifier):
    """An encoder, and a fully connected layer on the vector of each word (DropAttention, Section 5.2)."""

    def forward(
        self, tokens: Tensor, features: Mapping[str, Tensor] | None = None, first: Tensor | None = None
    ) -> Tensor:
        """Tag words: token ids (B, T) and ids by feature → logits (B, W, classes).

        `first` is the position of each word's first token (B, W); None: each word is one token, and W is T.
        """
        hidden, _ = self.encoder(tokens, features)
        if first is not None:
            hidden = hidden.gather(1, first[..., None].expand(-1, -1, hidden.shape[-1]))
        return cast(Tensor, self.classifier(self.dropout(hidden)))


class PairClassifier(nn.Module):
    """A shared encoder, and a 2-layer ReLU MLP on [u; v; |u − v|; u ⊙ v] (DropAttention, Section 5.3)."""

    def __init__(self, encoder: TextEncoder, classes: int, options: Head) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, options.pooling
        width, dropout = encoder.width, options.dropout
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(4 * width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, classes)
        )

    def forward(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """Classify pairs: token ids (B, 2, T) of premise and hypothesis, and ids by feature → logits (B, classes)."""
        # Both texts are encoded in one pass, so that the encoder's sites are called once.
        flat = None if features is None else {name: ids.flatten(0, 1) for name, ids in features.items()}
        pooled = pool(*self.encoder(tokens.flatten(0, 1), flat), self.pooling)
        u, v = pooled.unflatten(0, (-1, 2)).unbind(1)
        return cast(Tensor, self.classifier(torch.cat([u, v, (u - v).abs(), u * v], dim=-1)))


def pool(hidden: Tensor, real: Tensor, pooling: Pooling) -> Tensor:
    """Pool vectors (B, T, dim) over the real tokens of a mask (B, T) → (B, dim)."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~real[..., None], float("-inf")).amax(dim=1)
    return (hidden * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)


class ChoiceScorer(TextClassifier):
    """An encoder, and a linear score of the pooled vectors of each choice."""

    def __init__(self, encoder: TextEncoder, classes: int, options: Head) -> None:
        """Create the classifier of one output; `classes`, the number of choices, needs no parameters."""
        super().__init__(encoder, 1, options)

    def forward(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """Score choices: token ids (B, choices, T) and ids by feature → logits (B, choices)."""
        flat = None if features is None else {name: ids.flatten(0, 1) for name, ids in features.items()}
        return super().forward(tokens.flatten(0, 1), flat).view(tokens.shape[:2])


HEADS = {"text": TextClassifier, "words": Tagger, "pair": PairClassifier, "choice": ChoiceScorer, "span": Tagger}
"""The head for the unit that is labeled."""


def with_head(build_encoder: Callable[..., tuple[TextEncoder, Head]]) -> Callable[..., nn.Module]:
    """Turn a function that builds an encoder, and the options of its head, into a builder of a model with a head.

    The builder returns a `TextClassifier`, `Tagger` or `PairClassifier`. It has the arguments of `build_encoder`,
    `classes` (number of outputs) and `head` (a key of `HEADS`; default: text).
    """

    @wraps(build_encoder)
    def build(*args: Any, classes: int, head: str = "text", **data: Any) -> nn.Module:
        encoder, options = build_encoder(*args, **data)
        if options.linear_bigrams is not None and head != "text":
            raise InputError(f"linear_bigrams={options.linear_bigrams}: only for text classification")
        return HEADS[head](encoder, classes, options)

    return build
