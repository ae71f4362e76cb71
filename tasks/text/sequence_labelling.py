"""Sequence labeling (DropAttention, Section 5.2): one tag per word, for named entities, chunks and parts of speech."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench.harness.predictions.recorder import PROBABILITY_DECIMALS, Recorder, rounded
from dropbench.harness.predictions.schema import Kind, Ratio, content_id
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.sample_view import SampleView
from dropbench.harness.trials.task import Split
from dropbench.tasks.class_weights import class_weights
from dropbench.tasks.classifier import ACCURACY
from dropbench.tasks.data.text.tagged import TaggedData, TaggedSplit
from dropbench.tasks.text.base import TextTask, as_tensors
from dropbench.tasks.text.features import WordFeatures, mask_features, pad_features
from dropbench.tasks.text.spec import F1, SequenceLabellingSpec

UNTAGGED = -100
"""The tag id of padding, which the loss ignores."""


class SequenceLabelling(TextTask, SequenceLabellingSpec):
    """Sequence labeling: one tag per word. Sentences longer than `max_length` are tagged in parts."""

    @property
    def selection_metric(self) -> Metric:
        """F1 of spans, or accuracy for tags that mark no spans (parts of speech)."""
        return F1 if self.data.scored == "spans" else ACCURACY

    def setup(self) -> None:
        """Read the sentences, build the vocabularies of words and features, and encode the sentences."""
        self.data = self.read_data(TaggedData)
        self.splits: Mapping[str, TaggedSplit] = self.data.splits()
        self.tokenizer = self.make_tokenizer(self.data.train.words)
        tag_ids = {tag: number for number, tag in enumerate(self.classes)}
        self.features = WordFeatures(self.recipe.features, self.data.train.words, self.data.train.columns)
        self.parts = {name: self.split_sentences(name, split) for name, split in self.splits.items()}
        self.tokens: dict[str, Sequence[Tensor]] = {}
        self.first_tokens: dict[str, Sequence[Tensor]] = {}
        self.tags: dict[str, Sequence[Tensor]] = {}
        for name, split in self.splits.items():
            encoded = self.tokenizer.encode_words([split.words[row][span] for row, span in self.parts[name]])
            self.tokens[name] = as_tensors([tokens for tokens, _ in encoded])
            self.first_tokens[name] = as_tensors([first for _, first in encoded if first is not None])
            tags = [[tag_ids[tag] for tag in split.tags[row][span]] for row, span in self.parts[name]]
            self.tags[name] = as_tensors(tags)
        self.lengths = {split: [len(tokens) for tokens in rows] for split, rows in self.tokens.items()}
        self.check_window()

    def split_sentences(self, name: str, split: TaggedSplit) -> list[tuple[int, slice]]:
        """Return (sentence, its words) of each part of at most `max_length` tokens; note sentences in parts."""
        max_length, parts, num_split = self.recipe.max_length, list[tuple[int, slice]](), 0
        beginnings = self.tokenizer.encode_words([words[:max_length] for words in split.words])
        for row, (words, (tokens, _)) in enumerate(zip(split.words, beginnings, strict=True)):
            first = min(len(words), max_length) if len(tokens) <= max_length else self.num_fitting(words)
            end = 0
            while end < len(words):
                start, end = end, end + (self.num_fitting(words[end:]) if end else first)
                parts.append((row, slice(start, end)))
            num_split += parts[-1][1].start > 0
        if num_split:
            self.notes.append(
                f"{name}: {num_split:,} of {len(split):,} sentences exceed max_length={max_length}: tagged in parts"
            )
        return parts

    def num_fitting(self, words: Sequence[str]) -> int:
        """Return how many words, from the first on, have at most `max_length` tokens together: at least one."""
        max_length = self.recipe.max_length
        most = min(len(words), max_length)

        def num_tokens(count: int) -> int:
            return len(self.tokenizer.encode_words([words[:count]])[0][0])

        if num_tokens(most) <= max_length:
            return most
        return max(1, bisect_right(range(1, most), max_length, key=num_tokens))

    def model_sizes(self) -> dict[str, Any]:
        return {**super().model_sizes(), **({"features": self.features.sizes} if self.recipe.features else {})}

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Any]:
        """Return token ids (B, T), feature ids (B, T) or (B, T, C), first tokens and tags (B, W), part numbers (B,)."""
        tags = [self.tags[split][index] for index in indices]
        batch: dict[str, Any] = {
            "tokens": self.pad(split, [self.tokens[split][index] for index in indices]),
            "tags": _pad(tags, UNTAGGED),
            "part": torch.tensor(list(indices)),
            "words": sum(map(len, tags)),
        }
        if self.recipe.features:
            batch["features"] = pad_features([self.part_features(split, index) for index in indices])
        if self.first_tokens[split]:
            batch["first"] = _pad([self.first_tokens[split][index] for index in indices], 0)
        return batch

    def part_features(self, split: str, index: int) -> dict[str, Tensor]:
        """Return the ids of the features of the words of a part."""
        rows, (row, span) = self.splits[split], self.parts[split][index]
        return self.features.encode(
            rows.words[row][span], {name: values[row][span] for name, values in rows.columns.items()}
        )

    def mask_tokens(self, batch: dict[str, Any], share: float, generator: torch.Generator) -> dict[str, Any]:
        """See `TextTask.pad_words`; the features of masked words become padding, too."""
        tokens = self.pad_words(batch["tokens"], share, generator)
        features = mask_features(batch.get("features", {}), tokens == self.tokenizer.padding)
        return {**batch, "tokens": tokens, **({"features": features} if features else {})}

    @cached_property
    def loss_weights(self) -> Tensor | None:
        """The weight of each tag in the loss (classes,), after `setup`; None: all are 1."""
        given = self.recipe.class_weights
        return None if given is None else class_weights(given, self.classes, torch.cat(list(self.tags["train"])))

    def num_loss_terms(self, batch: dict[str, Any]) -> float:
        """Return the number of words; with weights of the tags, the sum of those of the words."""
        if self.loss_weights is None:
            return float(batch["words"])
        tags = batch["tags"]
        return float(self.loss_weights.to(tags.device)[tags[tags != UNTAGGED]].sum())

    def loss(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        """Return the mean cross entropy over words."""
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the mean cross entropy over words, and the logits (words, classes)."""
        logits, tags = self.logits(model, batch).flatten(0, 1), batch["tags"].flatten()
        weight = None if self.loss_weights is None else self.loss_weights.to(logits)
        smoothing = self.recipe.label_smoothing
        loss = cross_entropy(logits, tags, weight, ignore_index=UNTAGGED, label_smoothing=smoothing)
        return loss, logits[tags != UNTAGGED]

    def logits(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        """Return logits (B, W, classes)."""
        return cast(Tensor, model(batch["tokens"], batch.get("features"), batch.get("first")))

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the accuracy of tags, and F1, precision and recall of spans if the tags mark spans, in percent."""

        def tag(batch: Any) -> tuple[dict[int, list[int]], dict[int, list[float]]]:
            logits = self.logits(model, batch)
            best, parts = logits.argmax(dim=-1).cpu(), batch["part"].tolist()
            rows = zip(parts, best, batch["tags"].cpu(), strict=True)
            tagged = {part: tags[targets != UNTAGGED].tolist() for part, tags, targets in rows}
            if self.recorder is None:
                return tagged, {}
            largest = rounded(logits.float().softmax(dim=-1).amax(dim=-1).cpu().nan_to_num(), PROBABILITY_DECIMALS)
            return tagged, dict(zip(parts, largest, strict=True))

        predicted: dict[int, list[int]] = {}
        probabilities: dict[int, list[float]] = {}
        for tags, largest in self.map_batches(tag, batches):
            predicted |= tags
            probabilities |= largest
        predictions: dict[int, list[str]] = {}
        references: dict[int, list[str]] = {}
        for part in sorted(predicted):
            row, span = self.parts[split][part]
            predictions.setdefault(row, []).extend(self.classes[tag] for tag in predicted[part])
            references.setdefault(row, []).extend(self.splits[split].tags[row][span])
        spans = self.selection_metric is F1
        if self.recorder is not None:
            by_row: dict[int, list[float]] = {}
            for part in sorted(predicted):
                by_row.setdefault(self.parts[split][part][0], []).extend(probabilities[part][: len(predicted[part])])
            self._record(self.recorder, references, predictions, by_row, spans=spans)
        return tag_scores(list(references.values()), list(predictions.values()), spans=spans)

    def _record(
        self,
        recorder: Recorder,
        references: Mapping[int, Sequence[str]],
        predictions: Mapping[int, Sequence[str]],
        probabilities: Mapping[int, Sequence[float]],
        *,
        spans: bool,
    ) -> None:
        """Record the tags of each sentence, and the counts of which the metrics are ratios."""
        numbers = {tag: number for number, tag in enumerate(self.classes)}
        columns: dict[str, Kind] = {"target": "classes", "prediction": "classes", "probabilities": "numbers"}
        counts, metrics = ["words", "correct"], {ACCURACY.name: Ratio(sum="correct", over=("words",), scale=100.0)}
        if spans:
            counts += ["spans", "predicted_spans", "correct_spans"]
            f1 = Ratio(sum="correct_spans", over=("spans", "predicted_spans"), scale=200.0)
            metrics = {F1.name: f1, **metrics}
            for name, over in (("precision", "predicted_spans"), ("recall", "spans")):
                metrics[name] = Ratio(sum="correct_spans", over=(over,), scale=100.0)
        recorder.define({**columns, **dict.fromkeys(counts, "count")}, metrics, classes=self.classes)
        for row, target in references.items():
            tags = predictions[row]
            values = [len(target), sum(map(str.__eq__, target, tags))]
            if spans:
                true, found = ({*_entities(sequence)} for sequence in (target, tags))
                values += [len(true), len(found), len(true & found)]
            both = [[numbers[tag] for tag in sequence] for sequence in (target, tags)]
            cells = (row, *both, list(probabilities[row]), *values)
            recorder.add([dict(zip(("index", *columns, *counts), cells, strict=True))])

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the words and the tags of a sentence."""
        rows = self.splits[split]
        return content_id("\n".join(rows.words[index]), "\n".join(rows.tags[index]))

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the tokens of a part, out-of-vocabulary tokens included."""
        row, span = self.parts[split][index]
        words = self.tokenizer.tokenize(self.splits[split].words[row][span])
        return SampleView(" ".join(self.splits[split].tags[row][span]), words=tuple(words))


def tag_scores(references: list[list[str]], predictions: list[list[str]], *, spans: bool) -> dict[str, float]:
    """Score predicted tags.

    Args:
        references: the correct tags of each sentence.
        predictions: the predicted tags of each sentence.
        spans: whether the tags mark spans in BIO, which are counted as by conlleval.

    Returns:
        accuracy, and for spans f1, precision and recall, all in percent; 0 for a division by zero.
    """
    tags = [pair for sentence in zip(references, predictions, strict=True) for pair in zip(*sentence, strict=True)]
    scores = {ACCURACY.name: 100.0 * sum(true == predicted for true, predicted in tags) / max(1, len(tags))}
    if spans:
        with warnings.catch_warnings():
            # seqeval warns about tags that do not look like named entities, such as LST.
            warnings.simplefilter("ignore")
            precision, recall, f1, _ = precision_recall_fscore_support(
                references, predictions, average="micro", zero_division=0
            )
        scores.update(f1=100.0 * float(f1), precision=100.0 * float(precision), recall=100.0 * float(recall))
    return scores


def _entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the spans of a sentence as conlleval does: label, first word, last word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # see `tag_scores`
        spans: list[tuple[str, int, int]] = get_entities(list(tags))
    return spans


def _pad(rows: Sequence[Tensor], value: int) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=value)
