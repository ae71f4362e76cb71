"""Base classes of the tasks with one target per sample: a text, a pair of texts, or a text with choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import content_id
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.task import Split
from dropbench.tasks.classifier import ACCURACY, Classifier
from dropbench.tasks.data.read import Data
from dropbench.tasks.text.base import TextTask, as_tensors
from dropbench.tasks.text.features import WordFeatures, mask_features, pad_features
from dropbench.tasks.text.tokenizer import PairTokenizer, WordTokenizer, split_words

T = TypeVar("T")


class WholeTextTask(TextTask):
    """A task with one target per sample, which is a text, a pair of texts, or a text with choices.

    Class attributes:
        data_type: type of the data.

    Attributes, after `setup`:
        labels: by split, the targets (N,): numbers of classes, or scores.
    """

    data_type: ClassVar[type[Data]]
    labels: dict[str, Tensor]

    @abstractmethod
    def texts_of(self, rows: Any) -> Sequence[Sequence[str]]:
        """Return the texts of a split, each of which can be encoded by itself: sequences of N, two for pairs."""

    def pairs_of(self, rows: Any) -> Iterable[Sequence[tuple[Any, ...]]]:
        """Return the pairs of texts of each sample of a split that are joined, if `joins_pairs`: one per sample."""
        return ([pair] for pair in zip(*self.texts_of(rows), strict=True))

    @abstractmethod
    def targets_of(self, rows: Any) -> Tensor:
        """Return the targets of a split (N,)."""

    def target_text(self, target: Any) -> str:
        """Return a target as text, for ids."""
        return str(target)

    def setup(self) -> None:
        """Read the texts, build the vocabulary, and encode the texts."""
        data: Any = self.read_data(self.data_type)
        train = self.texts_of(data.train)
        self.tokenizer = self.make_tokenizer(map(split_words, chain(*train)))
        names = self.recipe.features or ()
        self.pairs = len(train) > 1
        self.word_features = WordFeatures(names, [split_words(text) for text in chain(*train)] if names else [])
        self.features: dict[str, list[tuple[dict[str, Tensor], ...]]] = {}
        self.tokens: dict[str, list[tuple[Tensor, ...]]] = {}
        self.content_ids: dict[str, list[str]] = {}
        self.lengths = {}
        self.labels = {name: self.targets_of(split) for name, split in data.splits().items()}
        for split, rows in data.splits().items():
            texts = self.texts_of(rows)
            if split != "train":  # the texts do not stay in memory
                samples = zip(*texts, self.labels[split].tolist(), strict=True)
                self.content_ids[split] = [content_id(*some, self.target_text(target)) for *some, target in samples]
            self.encode_split(split, texts, self.pairs_of(rows))
        self.check_window()

    def encode_split(
        self, split: str, texts: Sequence[Sequence[str]], pairs: Iterable[Sequence[tuple[Any, ...]]]
    ) -> None:
        """Encode the texts of a split, as `texts_of` and `pairs_of` return them."""
        if self.pairs and self.joins_pairs():
            self.join_pairs(split, pairs)
        else:
            encoded = [self.tokenizer.encode(some) for some in texts]
            self.note_truncated(split, "texts", [len(ids) > self.recipe.max_length for ids in chain(*encoded)])
            self.tokens[split] = list(zip(*map(self.truncate, encoded), strict=True))
            if self.recipe.features:
                self.features[split] = list(zip(*(map(self.text_features, some) for some in texts), strict=True))
        self.lengths[split] = [max(map(len, sample)) for sample in self.tokens[split]]

    def note_truncated(self, split: str, what: str, truncated: Sequence[bool]) -> None:
        """Note how many texts or pairs of a split are truncated, if any are."""
        if any(truncated):
            number, of, length = sum(truncated), len(truncated), self.recipe.max_length
            self.notes.append(f"{split}: {number:,} of {of:,} {what} truncated to max_length={length}")

    def joins_pairs(self) -> bool:
        """Return whether both texts of a pair are one input, as the tokenizer of a pre-trained model joins them."""
        return not isinstance(self.tokenizer, WordTokenizer) and self.recipe.model.get("pairs") != "siamese"

    def join_pairs(self, split: str, samples: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        """Encode each pair of the samples as one input, with the further inputs of the model as features."""
        pairs, size = list(chain.from_iterable(samples)), len(self.labels[split])
        encoded, truncated = cast(PairTokenizer, self.tokenizer).encode_pairs(pairs, self.recipe.max_length)
        self.note_truncated(split, "pairs", truncated)
        inputs = {name: as_tensors(rows) for name, rows in encoded.items()}
        self.tokens[split] = by_sample(inputs.pop("input_ids"), size)
        if inputs:
            features = [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
            self.features[split] = by_sample(features, size)

    def text_features(self, text: str) -> dict[str, Tensor]:
        """Return the ids of the features of the words of a text, at least one and at most `max_length`."""
        return self.word_features.encode(self.tokenizer.truncate(split_words(text) or [""], self.recipe.max_length))

    def model_sizes(self) -> dict[str, Any]:
        sizes = {**super().model_sizes(), "head": self.head_of_sample()}
        return {**sizes, **({"features": self.word_features.sizes} if self.recipe.features else {})}

    def head_of_sample(self) -> str:
        """Return the unit that is labeled in the data that were read."""
        return "pair" if self.pairs else "text"

    def example_id(self, split: Split, index: int) -> str | None:
        """Return an id by the texts and the target of a sample; None on train."""
        return self.content_ids[split][index] if split in self.content_ids else None

    def batch(self, split: Split, indices: Sequence[int]) -> tuple[Any, Tensor]:
        """Return inputs and targets (B,).

        The inputs are padded token ids, (B, T), or (B, 2, T) for pairs whose texts are encoded each by itself, and
        (B, choices, T). With features they are a tuple of those and the padded ids by feature.
        """
        tokens = self.pad(split, [text for index in indices for text in self.tokens[split][index]])
        labels = self.labels[split][list(indices)]
        texts = len(tokens) // len(labels)
        if split not in self.features:
            return by_text(tokens, texts), labels
        features = pad_features([text for index in indices for text in self.features[split][index]])
        return (by_text(tokens, texts), {name: by_text(ids, texts) for name, ids in features.items()}), labels

    def num_loss_terms(self, batch: tuple[Any, Tensor]) -> float:
        """Return the number of samples."""
        return len(batch[1])

    def logits(self, model: nn.Module, inputs: Any) -> Tensor:
        """Return logits (B, classes)."""
        return cast(Tensor, model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs))

    def mask_tokens(self, batch: tuple[Any, Tensor], share: float, generator: torch.Generator) -> tuple[Any, Tensor]:
        inputs, labels = batch
        if isinstance(inputs, Tensor):
            return self.pad_words(inputs, share, generator), labels
        tokens = self.pad_words(inputs[0], share, generator)
        return (tokens, mask_features(inputs[1], tokens == self.tokenizer.padding)), labels


class LabeledTextTask(WholeTextTask, Classifier):
    """A task with one label per text or per pair of texts.

    Class attributes:
        fields: fields of a split that hold the texts of a sample.
    """

    fields: ClassVar[tuple[str, ...]]

    def setup(self) -> None:
        """See `WholeTextTask.setup`; raises InputError for a metric that the data set cannot have."""
        super().setup()
        own = {metric.name for metric in self.metrics} - {ACCURACY.name}
        self.class_metrics = tuple(name for name in self.data_metrics if name in own)
        if "f1" in self.class_metrics and len(self.classes) != 2:
            data = f"data '{self.trial.data.name}' have {len(self.classes)}"
            raise InputError(f"metrics: f1 is of one class among two, and {data}: use f1-macro")

    @property
    def selection_metric(self) -> Metric:
        """The first metric of the data set, or else that of the task."""
        return next((metric for metric in self.metrics if metric.name in self.data_metrics[:1]), self.metrics[0])

    def texts_of(self, rows: Any) -> Sequence[Sequence[str]]:
        return [getattr(rows, field) for field in self.fields]

    def targets_of(self, rows: Any) -> Tensor:
        return torch.as_tensor(rows.labels)

    def train_targets(self) -> Tensor:
        return self.labels["train"]

    def target_text(self, target: int) -> str:
        return self.classes[target]


def by_sample(rows: Sequence[T], size: int) -> list[tuple[T, ...]]:
    """Return the rows of each of `size` samples, which have the same number of rows."""
    return list(zip(*[iter(rows)] * (len(rows) // size), strict=True))


def by_text(ids: Tensor, texts: int) -> Tensor:
    """Separate the texts of each sample: (B * texts, …) → (B, texts, …). Return those of one text as they are."""
    return ids.unflatten(0, (-1, texts)) if texts > 1 else ids
